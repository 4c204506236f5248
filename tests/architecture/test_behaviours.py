"""Every behaviour that has a number is named by the test that shows it, in its docstring or its module's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OTHER_ROWS = ("unit/smp_router/", "scenarios/smp_router/")
"""Named there are rows of another checklist, which have the same letters."""
STORE_FOLDERS = ("unit/ntf_router/", "scenarios/ntf_router/")
"""Where S1 … are those of NTF stores."""
NUMBERS = (
    *(f"N{number}" for number in range(1, 25)),
    *(f"S{number}" for number in range(1, 13)),
    *(f"D{number}" for number in range(1, 12)),
)
"""Of the NTF router, of its stores, of devices."""


def docstrings(source: str) -> Iterator[str]:
    """Of a test module and of its tests."""
    module = ast.parse(source)
    yield ast.get_docstring(module) or ""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield ast.get_docstring(node) or ""


@cache
def named() -> dict[str, set[str]]:
    """The files that name each behaviour."""
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(TESTS).as_posix()
        if path == Path(__file__) or name.startswith(OTHER_ROWS):
            continue
        for text in docstrings(path.read_text(encoding="utf-8")):
            for number in re.findall(r"\b[NSD][1-9][0-9]?\b", text):
                if number[0] != "S" or name.startswith(STORE_FOLDERS):
                    found.setdefault(number, set()).add(name)
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_behaviour_is_named_by_a_test(number: str) -> None:
    assert named().get(number)


def test_no_number_is_named_that_there_is_not() -> None:
    assert set(named()) <= set(NUMBERS)


def test_only_docstrings_of_tests_and_modules_count() -> None:
    source = '"""N1"""\ndef helper():\n    """N2"""\ndef test_x():\n    # N3\n    """N4"""\n'
    assert list(docstrings(source)) == ["N1", "N4"]
