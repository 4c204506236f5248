"""Reads TOML files with the line of every key, which neither `tomllib` nor tomlkit keeps.

The whole file is parsed once, which finds every syntax error and every duplicate key. Then each statement (a table's
heading, or a key with its value, on one line or more) is parsed on its own: a statement ends where it can be parsed. So
the lines are right, whatever is quoted, nested or spread over several lines.

Values are converted to the text that settings are read from, and back.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tocsin.errors import ConfigError
from tocsin.operate.settings.ini_files import read_text
from tocsin.operate.settings.setting_values import TomlForm, ValueKind

TomlPath = tuple[str, ...]
_DELETE: Final = "\x7f"


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


def text_of(kind: ValueKind, value: object) -> str:
    """Raises ValueError if the value has the wrong type: a number or a boolean in quotes is a text."""
    if kind.off and value is False:
        return "off"
    if not kind.separator or not isinstance(value, list):
        return _item_text(kind.form, value)
    items = [_item_text(kind.form, each) for each in value]
    if any(kind.separator in item or not item for item in items):
        raise ValueError
    return kind.separator.join(items)


def _item_text(form: TomlForm, value: object) -> str:
    match form, value:
        case TomlForm.BOOLEAN, bool():
            return "on" if value else "off"
        case TomlForm.NUMBER, int() if not isinstance(value, bool):
            return str(value)
        case TomlForm.NUMBER, float():
            return f"{value:.9f}".rstrip("0").rstrip(".")  # without an exponent
        case TomlForm.TEXT, str():
            return value
    raise ValueError


def literal_of(kind: ValueKind, text: str) -> str:
    """The TOML literal for a text that the kind reads."""
    if kind.off and text == "off":
        return "false"
    if kind.separator:
        parts = [part.strip() for part in text.split(kind.separator)]
        return f"[{', '.join(_item_literal(kind.form, part) for part in parts if part)}]"
    return _item_literal(kind.form, text)


def _item_literal(form: TomlForm, text: str) -> str:
    match form:
        case TomlForm.BOOLEAN:
            return "true" if text == "on" else "false"
        case TomlForm.NUMBER:
            return text
        case TomlForm.TEXT:
            # TOML's basic strings use the escapes of JSON, and also escape DEL.
            return json.dumps(text, ensure_ascii=False).replace(_DELETE, "\\u007f")
