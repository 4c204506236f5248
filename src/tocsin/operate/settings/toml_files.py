"""Reads TOML files with the line of every key, which neither `tomllib` nor tomlkit keeps.

The whole file is parsed once, which finds every syntax error and every duplicate key. Then each statement (a table's
heading, or a key with its value, on one line or more) is parsed on its own: a statement ends where it can be parsed. So
the lines are right, whatever is quoted, nested or spread over several lines.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.errors import ConfigError
from tocsin.operate.settings.ini_files import read_text

TomlPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TomlTable:
    path: TomlPath
    line: int


@dataclass(frozen=True, slots=True)
class TomlEntry:
    path: TomlPath
    value: object = field(repr=False)
    """Hidden, because it may be a password."""
    line: int


@dataclass(frozen=True, slots=True)
class TomlFile:
    name: str
    """The name that messages use."""
    tables: tuple[TomlTable, ...]
    entries: tuple[TomlEntry, ...]


def read_toml(path: Path) -> TomlFile:
    """Raises ConfigError, which names the file and the line."""
    return parse_toml(read_text(path), str(path))


def parse_toml(text: str, name: str) -> TomlFile:
    """Raises ConfigError with `name` and the line of the error. Arrays of tables are an error."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from None
    tables: list[TomlTable] = []
    entries: list[TomlEntry] = []
    here: TomlPath = ()
    for line, statement, is_heading in _statements(text):
        if is_heading:
            here, inner = _innermost(statement)
            if isinstance(inner, list):
                title = ".".join(here)
                raise ConfigError(f"{name}, line {line}: write [{title}] instead of [[{title}]]")
            tables.append(TomlTable(here, line))
        else:
            entries += [TomlEntry(path, value, line) for path, value in _leaves(statement, here)]
    return TomlFile(name, tuple(tables), tuple(entries))


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yields the first line, the content, and whether it is a table's heading."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = 0
    while first < len(lines):
        after = first + 1
        while (statement := _parsed(lines[first:after])) is None:
            after += 1
        if statement:
            yield first + 1, statement, lines[first].lstrip().startswith("[")
        first = after


def _parsed(lines: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _innermost(heading: dict[str, Any]) -> tuple[TomlPath, object]:
    """The path into `{"a": {"b": {}}}`, and the value at its end."""
    path: TomlPath = ()
    inner: object = heading
    while isinstance(inner, Mapping) and inner:
        [(name, inner)] = inner.items()
        path = (*path, name)
    return path, inner


def _leaves(table: Mapping[str, Any], path: TomlPath) -> Iterator[tuple[TomlPath, object]]:
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value
