"""Files of settings: INI and TOML. Operators write them, and tools copy them from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fuzz.contract import attempt, choose, demand
from tocsin.errors import ConfigError, DecodeError
from tocsin.operate.settings.ini_files import parse_ini
from tocsin.operate.settings.toml_files import parse_toml
from tocsin.wire.reader import as_text


def ini_file(data: bytes) -> None:
    text = attempt(lambda: as_text(data), DecodeError)
    parsed = None if text is None else attempt(lambda: parse_ini(text, "file"), ConfigError)
    if text is None or parsed is None:
        return
    lines = text.count("\n") + 1
    demand(all(1 <= entry.line <= lines for entry in parsed.entries), "an entry has a line of the file")
    demand(all("\n" not in entry.value for entry in parsed.entries), "a value is on one line")
    sections = {section.name for section in parsed.sections}
    demand({entry.section for entry in parsed.entries} <= sections, "an entry is in a section of the file")


def toml_file(data: bytes) -> None:
    text = attempt(lambda: as_text(data), DecodeError)
    parsed = None if text is None else attempt(lambda: parse_toml(text, "file"), ConfigError)
    if text is None or parsed is None:
        return
    lines = text.count("\n") + 1
    demand(all(1 <= entry.line <= lines for entry in parsed.entries), "an entry has a line of the file")
    demand(all(entry.path for entry in parsed.entries), "an entry has a name")


FILES: Final[tuple[Callable[[bytes], None], ...]] = (ini_file, toml_file)


def settings_file(data: bytes) -> None:
    """Files of settings, INI and TOML."""
    check, data = choose(data, FILES)
    check(data)
