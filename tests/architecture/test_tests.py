"""The tests themselves: a reader finds the test of a module, and no test waits for luck."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import group_of

TESTS: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = TESTS.parent / "src" / "tocsin"
REPOSITORY_FOLDERS: Final = frozenset({"tools"})
"""Folders of tests/unit about something else than the package."""
MIRRORED_SHARE: Final = 0.8
"""The rest are tests of a topic that several modules of the folder share."""

UNIT_TESTS: Final = sorted((TESTS / "unit").rglob("test_*.py"))


def package_of(test: Path) -> Path | None:
    """The folder of the package that a test is about; None for tests of the repository."""
    folder = test.relative_to(TESTS / "unit").parent
    if folder == Path() or folder.parts[0] in REPOSITORY_FOLDERS:
        return None
    return SOURCE / folder


@pytest.mark.parametrize("test", UNIT_TESTS, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_unit_test_stands_in_the_folder_of_what_it_tests(test: Path) -> None:
    package = package_of(test)
    assert package is None or (package / "__init__.py").exists()


def is_named_after_a_module(test: Path) -> bool:
    package, name = package_of(test), test.stem.removeprefix("test_")
    return package is not None and ((package / f"{name}.py").exists() or (package / name).is_dir())


def test_most_unit_tests_are_named_after_a_module() -> None:
    named = [test for test in UNIT_TESTS if is_named_after_a_module(test)]
    assert len(named) >= MIRRORED_SHARE * len(UNIT_TESTS)


@pytest.mark.parametrize(
    "test",
    [test for test in UNIT_TESTS if not is_named_after_a_module(test)],
    ids=lambda path: str(path.relative_to(TESTS)),
)
def test_a_test_of_a_topic_says_what_it_shows(test: Path) -> None:
    assert ast.get_docstring(ast.parse(test.read_text("utf-8")))


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in TESTS.rglob("*.py")}),
    ids=lambda path: str(path.relative_to(TESTS)),
)
def test_a_folder_of_tests_is_a_package(folder: Path) -> None:
    """Otherwise two test modules could not share a name."""
    assert (folder / "__init__.py").exists()


def hopeful_sleeps(source: str) -> list[int]:
    """Lines that sleep for a time, outside a loop that waits for a condition, without a comment that says why."""
    tree, lines = ast.parse(source), source.split("\n")
    polling = {
        inner
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While)
        for inner in ast.walk(loop)
        if isinstance(inner, ast.Call)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"asyncio.sleep", "time.sleep"}
        and ast.unparse(node.args[0]) != "0"
        and node not in polling
        and "  # " not in lines[node.lineno - 1]
    ]


@pytest.mark.parametrize(
    "test",
    [path for folder in ("unit", "scenarios") for path in sorted((TESTS / folder).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(TESTS)),
)
def test_no_test_sleeps_and_hopes(test: Path) -> None:
    assert hopeful_sleeps(test.read_text("utf-8")) == []


def test_a_hopeful_sleep_is_seen() -> None:
    assert hopeful_sleeps("import asyncio\nasync def f():\n    await asyncio.sleep(0.1)\n") == [3]
    assert hopeful_sleeps("async def f():\n    await asyncio.sleep(0.1)  # traffic runs meanwhile\n") == []
    assert hopeful_sleeps("async def f():\n    while not done():\n        await asyncio.sleep(0.1)\n") == []


def test_one_process_runs_all_tests_of_the_desk() -> None:
    """Each other one would start a Spark of its own."""
    users = [
        path
        for path in (TESTS / "adversity").glob("test_*.py")
        if "desk: SparkDesk" in (text := path.read_text("utf-8")) and "def desk(" not in text
    ]
    assert users
    assert {group_of(path) for path in users} == {"desk"}
