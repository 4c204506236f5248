"""Reads INI files as the reference's library does, but strictly.

file    = *( blank | comment | section | entry )
comment = ( "#" | ";" ) text            ; whole lines only: a value may contain both signs
section = "[" name "]"
entry   = key ( ":" | "=" ) value       ; the first of both signs; spaces around key and value do not count
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IniSection:
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class IniEntry:
    section: str
    key: str
    value: str = field(repr=False)
    """May be a password."""
    line: int


@dataclass(frozen=True, slots=True)
class IniFile:
    name: str
    """How messages call it."""
    sections: tuple[IniSection, ...]
    entries: tuple[IniEntry, ...]


def read_ini(path: Path) -> IniFile:
    """Raises ConfigError, which names the file and the line."""
    return parse_ini(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Raises ConfigError, which names the file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the file cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: the file is too large for settings")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text") from error


def parse_ini(text: str, name: str) -> IniFile:
    """Raises ConfigError with `name` and the number of the line that is wrong, also for a key given twice."""
    sections: list[IniSection] = []
    entries: dict[tuple[str, str], IniEntry] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped[0] == "[":
            sections.append(_section(stripped, number, name))
            continue
        if not sections:
            raise ConfigError(f"{name}, line {number}: a key before the first [SECTION]")
        entry = _entry(sections[-1].name, stripped, number, name)
        first = entries.setdefault((entry.section, entry.key), entry)
        if first is not entry:
            raise ConfigError(
                f"{name}, line {number}: [{entry.section}] {entry.key} is set already on line {first.line}"
            )
    return IniFile(name, tuple(sections), tuple(entries.values()))


def _section(line: str, number: int, name: str) -> IniSection:
    title = line[1:-1].strip()
    if not line.endswith("]") or not title:
        raise ConfigError(f"{name}, line {number}: [SECTION] is expected after an opening bracket")
    return IniSection(title, number)


def _entry(section: str, line: str, number: int, name: str) -> IniEntry:
    ends = [end for sign in ":=" if (end := line.find(sign)) > 0]
    if not ends:
        # Not shown: a broken line may be half a password.
        raise ConfigError(f"{name}, line {number}: `key: value` is expected")
    end = min(ends)
    return IniEntry(section, line[:end].strip(), line[end + 1 :].strip(), number)
