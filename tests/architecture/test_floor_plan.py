"""The shape of the package: small folders, no circles, one name for one class, few collaborators."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from typing import Final

import pytest

from tests.architecture.source_tree import (
    PACKAGE,
    Class,
    classes,
    collaborators,
    cycles,
    imported_modules,
    modules,
)

MOST_MODULES: Final = 20
MOST_COLLABORATORS: Final = 6
SHORTEST_DOCSTRING: Final = 40


def folders() -> dict[str, list[str]]:
    """The modules of each folder, without the package itself."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        if path.name != "__init__.py":
            found[name.rpartition(".")[0]].append(name)
    return found


@pytest.mark.parametrize("folder", sorted(folders()))
def test_folder_holds_few_modules(folder: str) -> None:
    assert len(folders()[folder]) <= MOST_MODULES


def packages() -> list[str]:
    return sorted(name for name, path in modules().items() if path.name == "__init__.py" and name != PACKAGE)


@pytest.mark.parametrize("package", packages())
def test_package_says_what_belongs_there(package: str) -> None:
    docstring = ast.get_docstring(ast.parse(modules()[package].read_text("utf-8")))
    assert docstring is not None
    assert len(docstring) >= SHORTEST_DOCSTRING


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles(dict(imported_modules())) == []


def both_ways(graph: dict[str, frozenset[str]], parent: str, child: str) -> bool:
    """Whether modules of a folder import from a subfolder, and modules of the subfolder from the folder."""
    of_parent = {name for name in graph if name.rpartition(".")[0] == parent}
    of_child = {name for name in graph if name == child or name.startswith(child + ".")}
    down = any(graph[name] & of_child for name in of_parent)
    up = any(graph[name] & of_parent for name in of_child)
    return down and up


@pytest.mark.parametrize("child", [each for each in packages() if each.count(".") > 1])
def test_a_folder_and_its_subfolder_import_in_one_direction_only(child: str) -> None:
    graph = {
        name: found for name, found in imported_modules().items() if modules()[name].name != "__init__.py"
    }
    assert not both_ways(graph, child.rpartition(".")[0], child)


def test_each_public_class_name_exists_once() -> None:
    names = Counter(each.node.name for each in classes() if not each.node.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("owner", classes(), ids=lambda each: f"{each.module}.{each.node.name}")
def test_nothing_is_given_more_than_six_collaborators(owner: Class) -> None:
    assert len(collaborators(owner)) <= MOST_COLLABORATORS, collaborators(owner)


# The checkers themselves: each of these must be seen.


def test_a_circle_is_seen() -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert cycles(graph) == [["a", "b", "c"]]


def test_imports_in_both_directions_are_seen() -> None:
    graph = {"p.x": frozenset({"p.q.y"}), "p.q.y": frozenset({"p.z"}), "p.z": frozenset[str]()}
    assert both_ways(graph, "p", "p.q")
    assert not both_ways({**graph, "p.q.y": frozenset()}, "p", "p.q")


def test_collaborators_are_objects_and_functions_but_not_records() -> None:
    source = """
class Owner:
    def __init__(self, store: SmpStore, settings: SmpSettings, wake: Callable[[], None], count: int) -> None: ...
"""
    [node] = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert collaborators(Class("tocsin.x", node)) == ["store", "wake"]
