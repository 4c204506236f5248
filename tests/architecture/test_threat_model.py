"""The threat model names the tests that show it: each row of its attackers has one, and all that are named exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def attackers(page: str) -> list[str]:
    """The rows of the table under “Attackers”."""
    section = page.partition("## Attackers")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| **")]


def named(text: str) -> list[tuple[str, str]]:
    """Files, and tests in them if any are named."""
    return TEST.findall(text)


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(each.name for each in functions if each.name.startswith("test_"))


@pytest.mark.parametrize("row", attackers(PAGE), ids=lambda row: row.split("|")[1].strip(" *"))
def test_each_attacker_names_a_test_that_shows_its_row(row: str) -> None:
    assert [test for _, test in named(row) if test]


@pytest.mark.parametrize(("file", "test"), sorted(set(named(PAGE))))
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert (ROOT / file).is_file()
    assert not test or test in names_in(file)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z-]+)`", PAGE))))
def test_a_make_target_that_is_named_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_all_attackers_are_found() -> None:
    assert len(attackers(PAGE)) == 13
    assert attackers("## Attackers\n| **a** |\n## Other\n| **b** |") == ["| **a** |"]
    assert named("`tests/a.py::test_b`, `tests/c.py`") == [("tests/a.py", "test_b"), ("tests/c.py", "")]
