"""The package as the architecture tests see it: parsed, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
PACKAGE: Final = "tocsin"

RECORD_BASES: Final = frozenset(
    {"Struct", "NamedTuple", "Enum", "IntEnum", "StrEnum", "Flag", "TypedDict", "Exception", "TocsinError"}
)


@dataclass(frozen=True, slots=True)
class Import:
    line: int
    target: str
    """Dotted name; for `from a import b` it is `a.b`, whether b is a module or not."""


def imports_of(module: str, *, is_package: bool, source: str) -> Iterator[Import]:
    """Yield every import in the source, wherever it stands. Relative imports become absolute."""
    parents = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name)
            case ast.ImportFrom():
                base = parents[: len(parents) - node.level + 1] if node.level else []
                origin = [*base, *([node.module] if node.module else [])]
                for alias in node.names:
                    yield Import(node.lineno, ".".join([*origin, alias.name]))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]):
                if name in {"import_module", "__import__"}:
                    yield Import(node.lineno, _imported_by_call(first, parents))


def _imported_by_call(argument: ast.expr, parents: list[str]) -> str:
    match argument:
        case ast.Constant(value=str(text)):
            dots = len(text) - len(text.lstrip("."))
            return ".".join([*parents[: len(parents) - dots + 1], text[dots:]]) if dots else text
    return "<a name that is not a literal>"


@cache
def modules() -> dict[str, Path]:
    """Every module and package, by its dotted name."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported_modules() -> dict[str, frozenset[str]]:
    """The modules of this package that each module imports."""
    known = modules()
    found = {}
    for name, path in known.items():
        targets = set()
        for each in imports_of(name, is_package=path.name == "__init__.py", source=path.read_text("utf-8")):
            target = each.target
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target and target != name:
                targets.add(target)
        found[name] = frozenset(targets)
    return found


def cycles(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for target in graph[name]:
            if target not in numbers:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], numbers[target])
        if lowest[name] == numbers[name]:
            group: list[str] = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in numbers:
            visit(name)
    return found


@dataclass(frozen=True, slots=True)
class Class:
    module: str
    node: ast.ClassDef

    @property
    def is_record(self) -> bool:
        """Plain data: a dataclass, struct, named tuple, enum or error."""
        if any("dataclass" in ast.unparse(decorator) for decorator in self.node.decorator_list):
            return True
        bases = {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in self.node.bases}
        return bool(bases & RECORD_BASES) or any(base.endswith("Error") for base in bases)

    @property
    def parameters(self) -> list[tuple[str, ast.expr]]:
        """The annotated parameters of `__init__`, or the fields of a record that have no default."""
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                return [(each.arg, each.annotation) for each in arguments if each.annotation is not None]
        if not self.is_record:
            return []
        return [
            (node.target.id, node.annotation)
            for node in self.node.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is None
        ]


@cache
def classes() -> tuple[Class, ...]:
    return tuple(
        Class(name, node)
        for name, path in modules().items()
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )


@cache
def _behaving() -> frozenset[str]:
    """The names of classes with behaviour, and of records that hold objects of such classes."""
    objects = frozenset(each.node.name for each in classes() if not each.is_record)
    holders = (each for each in classes() if each.is_record)
    return objects | {
        each.node.name
        for each in holders
        if any(_names(annotation) & objects for _, annotation in each.parameters)
    }


def collaborators(owner: Class) -> list[str]:
    """The parameters that are objects with behaviour of this package, or functions. Records are plain data."""
    wanted = _behaving() | {"Callable"}
    return [name for name, annotation in owner.parameters if _names(annotation) & wanted]


def _names(annotation: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)} | {
        node.attr for node in ast.walk(annotation) if isinstance(node, ast.Attribute)
    }
