"""Settings files whose keys are declared in a table: to settings, from settings, and a new file.

The environment wins over the file, and the file over the defaults. What is not known is refused by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from tocsin.config.ini_files import IniEntry, IniFile, read_ini
from tocsin.config.setting_values import ValueKind
from tocsin.errors import ConfigError

_HIDDEN: Final = "(hidden)"

# These names say nothing without their section.
_NAMED_WITH_SECTION: Final = frozenset({"enable", "disconnect", "ttl", "check_interval"})

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key of a file; each kind of file has a subclass with the prefix of its environment variables."""

    environment_prefix: ClassVar[str] = "TOCSIN_"

    section: str
    name: str
    kind: ValueKind
    about: str = ""
    """For the comment above the key; empty for keys that new files do not have."""
    setting: str | None = None
    """The field of the settings, with dots for fields of fields; none if nothing depends on it."""
    switch: bool = False
    """`off` makes the setting None, `on` leaves it to the key that gives its value."""
    secret: bool = False
    shown: str | None = None
    """What a new file has as default, if it is not that of the setting."""
    also: str = ""
    """Another environment variable: weaker than our own, stronger than the file."""

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file."""
        name = f"{self.section}_{self.name}" if self.name in _NAMED_WITH_SECTION else self.name
        return self.environment_prefix + name.upper()


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    name: str
    """`[SECTION] key`"""
    value: str
    source: str
    """`default`, a file with line, or an environment variable."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A value somebody chose."""

    key: SettingKey
    value: Any = field(repr=False)
    source: str
    rank: int
    """Of its source: 1 file, 2 another program's environment variable, 3 ours."""


class KeyedSettings(Generic[S]):
    """One kind of file. `S` is a frozen dataclass with a field `sources`, a mapping from variable to place."""

    def __init__(self, keys: Sequence[SettingKey], missing: Callable[[str], Any] | None = None) -> None:
        """`missing` makes what a mapping in the settings does not have yet, by its name."""
        self.keys: Final = tuple(keys)
        self._missing = missing
        self._prefix = keys[0].environment_prefix
        self._sections = tuple(dict.fromkeys(key.section for key in keys))
        self._by_name = {(key.section, key.name): key for key in keys}
        self._by_variable = {key.variable: key for key in keys}

    def load(self, path: Path, environment: Mapping[str, str], defaults: S) -> S:
        """Raises ConfigError naming file and line, or variable, the key, and what is expected."""
        file = read_ini(path)
        self._refuse_unknown_sections(file)
        given = [self._from_entry(entry, file.name) for entry in file.entries]
        given += self._from_environment(environment)
        settings: Any = defaults
        for each in _strongest(given):
            key = each.key
            if key.setting is not None and not (key.switch and each.value):
                settings = self._with(settings, key.setting, None if key.switch else each.value)
        sources = {each.key.variable: each.source for each in sorted(given, key=lambda each: each.rank)}
        result: S = replace(settings, sources=sources)
        return result

    def describe(self, settings: S) -> list[DescribedSetting]:
        """Every setting, with passwords hidden."""
        sources: Mapping[str, str] = getattr(settings, "sources", {})
        return [
            DescribedSetting(
                f"[{key.section}] {key.name}", _text(key, settings), sources.get(key.variable, "default")
            )
            for key in self.keys
            if key.setting is not None and self._speaks_for_its_setting(key, sources)
        ]

    def new_file(self, heading: Sequence[str], chosen: Mapping[str, str], defaults: S) -> str:
        """A commented file with every key; those in `chosen` are set, the others stand there with their defaults."""
        lines = [f"# {line}" for line in heading]
        section = None
        for key in self.keys:
            if not key.about:
                continue
            if key.section != section:
                section = key.section
                lines += ["", f"[{section}]"]
            lines.append(f"# {key.about}")
            if key.name in chosen:
                lines.append(f"{key.name}: {chosen[key.name]}")
            else:
                lines.append(f"# {key.name}: {_default_text(key, defaults)}".rstrip())
        return "\n".join(lines) + "\n"

    def checked_value(self, section: str, name: str, value: str, where: str) -> Any:
        """The value as the settings have it. Raises ConfigError, which begins with `where`."""
        return _read(self._by_name[section, name], value, where)

    def _refuse_unknown_sections(self, file: IniFile) -> None:
        for section in file.sections:
            if section.name not in self._sections:
                nearest = _nearest(section.name, self._sections, "[{}]")
                raise ConfigError(
                    f"{file.name}, line {section.line}: unknown section [{section.name}]{nearest}"
                )

    def _from_entry(self, entry: IniEntry, file: str) -> _Given:
        where = f"{file}, line {entry.line}"
        key = self._by_name.get((entry.section, entry.key))
        if key is None:
            here = [key.name for key in self.keys if key.section == entry.section]
            elsewhere = [key.section for key in self.keys if key.name == entry.key]
            nearest = f"; it belongs to [{elsewhere[0]}]" if elsewhere else _nearest(entry.key, here, "`{}`")
            raise ConfigError(f"{where}: unknown key `{entry.key}` in [{entry.section}]{nearest}")
        return _Given(key, _read(key, entry.value, where), where, rank=1)

    def _from_environment(self, environment: Mapping[str, str]) -> Iterator[_Given]:
        for key in self.keys:
            if key.also and (text := environment.get(key.also)):
                where = f"environment variable {key.also}"
                yield _Given(key, _read(key, text, where), where, rank=2)
        for variable, value in environment.items():
            if not variable.startswith(self._prefix):
                continue
            known = self._by_variable.get(variable)
            if known is None:
                nearest = _nearest(variable, self._by_variable, "{}")
                raise ConfigError(f"unknown environment variable {variable}{nearest}")
            where = f"environment variable {variable}"
            yield _Given(known, _read(known, value, where), where, rank=3)

    def _with(self, settings: Any, path: str, value: Any) -> Any:
        """The settings with another value at the end of the path; `settings` may be a part of them."""
        name, _, rest = path.partition(".")
        if isinstance(settings, Mapping):
            inner = settings.get(name)
            if inner is None and self._missing is not None:
                inner = self._missing(name)
            return {**settings, name: self._with(inner, rest, value)}
        return replace(
            settings, **{name: self._with(getattr(settings, name), rest, value) if rest else value}
        )

    def _speaks_for_its_setting(self, key: SettingKey, sources: Mapping[str, str]) -> bool:
        """Of several keys for one setting, the one that was used is shown, or the first."""
        same = [each for each in self.keys if each.setting == key.setting and each.switch == key.switch]
        used = [each for each in same if each.variable in sources]
        by_environment = [each for each in used if each.variable in sources[each.variable]]
        return (by_environment or used or same)[0] is key


def _read(key: SettingKey, text: str, where: str) -> Any:
    try:
        return key.kind.read(text)
    except ValueError:
        found = "" if key.secret else f", not {text[:64]!r}"
        raise ConfigError(
            f"{where}: [{key.section}] {key.name}: {key.kind.expected} is expected{found}"
        ) from None


def _nearest(name: str, known: Iterable[str], shape: str) -> str:
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {shape.format(by_lower[found[0]])}?" if found else ""


def _strongest(given: Iterable[_Given]) -> list[_Given]:
    """What counts, switches last. Raises ConfigError if two keys of one source give the same setting."""
    values: dict[tuple[str | None, bool], _Given] = {}
    for each in sorted(given, key=lambda each: each.rank):
        setting = (each.key.setting, each.key.switch)
        other = values.get(setting)
        if each.key.setting and other and other.rank == each.rank:
            raise ConfigError(
                f"{each.source}: [{each.key.section}] {each.key.name} sets the same as "
                f"[{other.key.section}] {other.key.name} ({other.source}): one of them must go"
            )
        values[setting] = each
    return sorted(values.values(), key=lambda each: each.key.switch)


def _text(key: SettingKey, settings: Any) -> str:
    value = settings
    for name in (key.setting or "").split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if key.switch:
        return key.kind.write(value is not None)
    if key.secret:
        return "(none)" if value is None else _HIDDEN
    return "off" if value is None else key.kind.write(value)


def _default_text(key: SettingKey, defaults: Any) -> str:
    if key.shown is not None:
        return key.shown
    return "" if key.secret or key.setting is None else _text(key, defaults)
