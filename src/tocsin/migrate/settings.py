"""Adapts settings for a move: the reference's INI file for Tocsin, and a file of Tocsin's for the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from tocsin.errors import ConfigError
from tocsin.operate.settings.ini_files import IniEntry, parse_ini, read_text
from tocsin.operate.settings.keyed_settings import TOML_SUFFIX
from tocsin.operate.settings.setting_keys import OWN_SECTION, SettingKey

STORE_SECTION: Final = "STORE_LOG"
NOTHING_KEPT: Final = (
    "the server keeps nothing across restarts ([STORE_LOG] enable: off), so there is no store to move: copy the "
    "certificates and settings yourself"
)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class AdaptedSettings:
    text: str
    notes: tuple[str, ...]

    def loaded(self, path: Path, load: Callable[[Path], S]) -> S:
        """Load the adapted text as it will be written. Raises ConfigError, which names `path`, its source."""
        with TemporaryDirectory(prefix="tocsin-migrate-") as folder:
            draft = Path(folder) / path.name
            draft.touch(mode=0o600)
            draft.write_text(self.text, "utf-8")
            try:
                return load(draft)
            except ConfigError as error:
                raise ConfigError(str(error).replace(str(draft), str(path))) from None


def adapted_ini(
    path: Path, keys: Sequence[SettingKey], values: Mapping[tuple[str, str], str]
) -> AdaptedSettings:
    """Adapt the reference's file for Tocsin: comment out keys that Tocsin does not have, and set `values`.

    Raises ConfigError if the file cannot be read, or names a kind of store that Tocsin does not read.
    """
    text = read_text(path)
    by_name = {(key.section, key.name): key for key in keys}
    lines, notes, idle = text.split("\n"), list[str](), list[str]()
    left = dict(values)
    for entry in parse_ini(text, str(path)).entries:
        key = by_name.get((entry.section, entry.key))
        if (entry.section, entry.key) in left:
            lines[entry.line - 1] = f"{entry.key}: {left.pop((entry.section, entry.key))}"
        elif key is None:
            lines[entry.line - 1] = f"# {lines[entry.line - 1]}"
            notes.append(
                f"line {entry.line}, [{entry.section}] {entry.key}: unknown to Tocsin, commented out"
            )
        elif key.setting is None and (declined := _declined(key, entry)):
            if entry.section == STORE_SECTION:
                raise ConfigError(f"{path}, line {entry.line}: {_store_step(entry)}")
            lines[entry.line - 1] = f"# {lines[entry.line - 1]}"
            notes.append(f"line {entry.line}, [{entry.section}] {entry.key}: {declined}; commented out")
        elif key.setting is None and entry.value:
            idle.append(f"[{entry.section}] {entry.key}")
    if idle:
        notes.append(f"accepted without effect: {', '.join(idle)}")
    for (section, name), value in left.items():
        _insert(lines, section, f"{name}: {value}")
    return AdaptedSettings("\n".join(lines), tuple(notes))


def _declined(key: SettingKey, entry: IniEntry) -> str:
    """Why Tocsin does not support the entry's value; empty if it does."""
    try:
        key.kind.read(entry.value)
    except ValueError:
        return key.kind.expected.partition(":")[0]
    return ""


def _store_step(entry: IniEntry) -> str:
    command = "smp-server journal export" if entry.value == "journal" else "smp-server database export"
    return (
        f"{entry.key} is `{entry.value}`, which Tocsin does not read: run `{command}` of the reference, which writes "
        f"logs, set {entry.key} to memory, then run this command again"
    )


def with_values(text: str, values: Mapping[tuple[str, str], str]) -> str:
    """Set values in the text of an INI file."""
    lines, left = text.split("\n"), dict(values)
    for entry in parse_ini(text, "").entries:
        if (entry.section, entry.key) in left:
            lines[entry.line - 1] = f"{entry.key}: {left.pop((entry.section, entry.key))}"
    for (section, name), value in reversed(left.items()):
        _insert(lines, section, f"{name}: {value}")
    return "\n".join(lines)


def _insert(lines: list[str], section: str, line: str) -> None:
    """Insert at the beginning of the section, which is added if it is missing."""
    heading = f"[{section}]"
    places = [number for number, each in enumerate(lines) if each.strip() == heading]
    if places:
        lines.insert(places[0] + 1, line)
        return
    if lines and not lines[-1]:
        lines.pop()
    lines += ["", heading, line, ""]


def reference_ini(path: Path, keys: Sequence[SettingKey], settings: Any) -> AdaptedSettings:
    """Adapt a file of Tocsin's for the reference: keep an INI file, and write a new one from a TOML file."""
    sources: Mapping[str, str] = settings.sources
    own = [
        key.ini_name
        for key in keys
        if key.section == OWN_SECTION and sources.get(key.variable, "").startswith(str(path))
    ]
    notes = [f"unknown to the reference, and without effect there: {', '.join(own)}"] if own else []
    if path.suffix != TOML_SUFFIX:
        return AdaptedSettings(read_text(path), tuple(notes))
    lines, section = ["# Converted from a TOML file of Tocsin."], ""
    for key in keys:
        if key.section == OWN_SECTION or key.setting is None:
            continue
        value = _value_of(key, settings)
        if value is None or (key.secret and not value):
            continue
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"]
        lines.append(f"{key.name}: {value}")
    notes.append("settings in TOML become an INI file without comments")
    return AdaptedSettings("\n".join(lines) + "\n", tuple(notes))


def _value_of(key: SettingKey, settings: Any) -> str | None:
    """None if the key must be left out: it is not set, or off."""
    value = settings
    for name in (key.setting or "").split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if key.switch:
        return key.kind.write(value is not None)
    if value is None or value == ():
        return None
    return key.kind.write(value)
