"""Values with their source: a file, the environment or the command line; and errors about wrong ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tocsin.errors import ConfigError
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.toml_files import text_of


class Rank(IntEnum):
    """The higher one wins. Defaults are below all."""

    FILE = 1
    OTHER_VARIABLE = 2
    """The environment variable of another program, which we read too."""
    VARIABLE = 3
    COMMAND_LINE = 4


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was set, and where."""

    key: SettingKey
    value: Any = field(repr=False)
    source: str
    """For people."""
    rank: Rank


def read_value(key: SettingKey, text: str, where: str) -> Any:
    """Raises ConfigError, which begins with `where`."""
    try:
        return key.kind.read(text)
    except ValueError:
        found = "" if key.secret else f", not {text[:64]!r}"
        raise ConfigError(f"{where}: {key.ini_name}: {key.kind.expected} is expected{found}") from None


def read_toml_value(key: SettingKey, value: object, where: str) -> Any:
    """Raises ConfigError, which begins with `where`."""
    try:
        return key.kind.read(text_of(key.kind, value))
    except ValueError:
        found = "" if key.secret else f", not {_shown(value)}"
        raise ConfigError(f"{where}: {key.toml_name}: {key.kind.toml_expected} is expected{found}") from None


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"the text {value[:64]!r}"
        case int() | float():
            return f"the number {str(value)[:64]}"
        case list():
            return "such an array"
        case dict():
            return "a table"
    return "a date or time"


def nearest(name: str, known: Iterable[str], shape: str) -> str:
    """`; did you mean …?`, or what else to do."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return (
        f"; did you mean {shape.format(by_lower[found[0]])}?" if found else "; remove it, or correct its name"
    )


def strongest(given: Iterable[Given]) -> list[Given]:
    """The values that win, switches last. Raises ConfigError if two keys of one source set the same setting."""
    values: dict[tuple[str | None, bool], Given] = {}
    for each in sorted(given, key=lambda each: each.rank):
        setting = (each.key.setting, each.key.switch)
        other = values.get(setting)
        if each.key.setting and other and other.rank == each.rank and other.key is not each.key:
            raise ConfigError(
                f"{each.source}: {each.key.ini_name} sets the same as {other.key.ini_name} "
                f"({other.source}): remove one of them"
            )
        values[setting] = each
    return sorted(values.values(), key=lambda each: each.key.switch)
