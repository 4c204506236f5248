"""Settings whose keys are declared in a table: loading, describing and checking them, and writing a new file.

The command line wins over the environment, the environment over the file, and the file over the defaults. Unknown
keys are refused by name. A file whose name ends in .toml is TOML, any other is INI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tocsin.errors import ConfigError
from tocsin.operate.settings.given_values import Given, Rank, nearest, read_toml_value, read_value, strongest
from tocsin.operate.settings.ini_files import IniEntry, read_ini
from tocsin.operate.settings.new_files import NewFile
from tocsin.operate.settings.problems import Problems
from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.toml_files import TomlEntry, TomlPath, read_toml

HIDDEN: Final = "(hidden)"
NONE: Final = "(none)"
TOML_SUFFIX: Final = ".toml"
COMMAND_LINE: Final = "command line"

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    key: SettingKey
    value: str
    """Text that can be set again; a secret is hidden."""
    source: str
    """`default`, a file with line, an environment variable, or the command line."""

    @property
    def name(self) -> str:
        return self.key.ini_name


class KeyedSettings(Generic[S]):
    """One kind of file. `S` is a frozen dataclass with a field `sources`, a mapping from variable to place."""

    def __init__(self, keys: Sequence[SettingKey], missing: Callable[[str], Any] | None = None) -> None:
        """`missing` makes a value that a mapping in the settings lacks, by its name."""
        self.keys: Final = tuple(keys)
        self._missing = missing
        self._prefix = keys[0].environment_prefix
        self._sections = tuple(dict.fromkeys(key.section for key in keys))
        self._by_name = {(key.section, key.name): key for key in keys}
        self._by_variable = {key.variable: key for key in keys}
        self._by_path = {key.toml_path: key for key in keys}
        self._tables = {path[:end] for path in self._by_path for end in range(1, len(path))}

    def load(
        self, path: Path, environment: Mapping[str, str], defaults: S, command_line: Iterable[str] = ()
    ) -> S:
        """Raises ConfigError naming the file and line, or the variable, the key, and the expected value.

        Several problems raise SeveralProblems. `command_line` has texts like `port=5223`.
        """
        problems, given = Problems(), list[Given]()
        read = self._from_toml if path.suffix == TOML_SUFFIX else self._from_ini
        with problems.noting():
            given += read(path, problems)
        given += self._from_environment(environment, problems)
        given += self._from_command_line(command_line, problems)
        settings: Any = defaults
        with problems.noting():
            for each in strongest(given):
                key = each.key
                if key.setting is not None and not (key.switch and each.value):
                    settings = self._with(settings, key.setting, None if key.switch else each.value)
        problems.raise_any()
        sources = {each.key.variable: each.source for each in sorted(given, key=lambda each: each.rank)}
        result: S = replace(settings, sources=sources)
        return result

    def raise_together(self, path: Path, sentences: Iterable[str]) -> None:
        """Raises ConfigError if there are sentences. Keys in them, `[SECTION] key`, get the names of the format."""
        problems = Problems()
        for sentence in sentences:
            in_toml = path.suffix == TOML_SUFFIX
            problems.found.append(self._with_toml_names(sentence) if in_toml else sentence)
        problems.raise_any()

    def describe(self, settings: S) -> list[DescribedSetting]:
        """Every setting, with passwords hidden."""
        sources: Mapping[str, str] = getattr(settings, "sources", {})
        return [
            DescribedSetting(key, _text(key, settings), sources.get(key.variable, "default"))
            for key in self.keys
            if key.setting is not None and self._speaks_for_its_setting(key, sources)
        ]

    def new_file(
        self, heading: Sequence[str], chosen: Mapping[str, str], defaults: S, *, toml: bool = False
    ) -> str:
        """A commented file with every key. Keys in `chosen` are set; the others show their defaults."""
        file = NewFile(heading, self.keys, chosen, lambda key: default_text(key, defaults))
        return file.toml_text() if toml else file.ini_text()

    def checked_value(self, section: str, name: str, value: str, where: str) -> Any:
        """The value as the settings have it. Raises ConfigError, which begins with `where`."""
        return read_value(self._by_name[section, name], value, where)

    def _from_ini(self, path: Path, problems: Problems) -> Iterator[Given]:
        file = read_ini(path)
        for section in file.sections:
            with problems.noting():
                if section.name not in self._sections:
                    hint = nearest(section.name, self._sections, "[{}]")
                    where = f"{file.name}, line {section.line}"
                    raise ConfigError(f"{where}: unknown section [{section.name}]{hint}")
        for entry in file.entries:
            if entry.section in self._sections:
                with problems.noting():
                    yield self._from_entry(entry, file.name)

    def _from_entry(self, entry: IniEntry, file: str) -> Given:
        where = f"{file}, line {entry.line}"
        key = self._by_name.get((entry.section, entry.key))
        if key is None:
            here = [key.name for key in self.keys if key.section == entry.section]
            elsewhere = [key.section for key in self.keys if key.name == entry.key]
            hint = f"; it belongs to [{elsewhere[0]}]" if elsewhere else nearest(entry.key, here, "`{}`")
            raise ConfigError(f"{where}: unknown key `{entry.key}` in [{entry.section}]{hint}")
        return Given(key, read_value(key, entry.value, where), where, Rank.FILE)

    def _from_toml(self, path: Path, problems: Problems) -> Iterator[Given]:
        file = read_toml(path)
        unknown: set[TomlPath] = set()
        for table in file.tables:
            if table.path not in self._tables:
                unknown.add(table.path)
                with problems.noting():
                    hint = nearest(".".join(table.path), map(".".join, self._tables), "[{}]")
                    where = f"{file.name}, line {table.line}"
                    raise ConfigError(f"{where}: unknown table [{'.'.join(table.path)}]{hint}")
        for entry in file.entries:
            if entry.path[:-1] not in unknown:
                with problems.noting():
                    yield self._from_toml_entry(entry, file.name)

    def _from_toml_entry(self, entry: TomlEntry, file: str) -> Given:
        where = f"{file}, line {entry.line}"
        key = self._by_path.get(entry.path)
        if key is None:
            raise ConfigError(f"{where}: {self._unknown_path(entry.path)}")
        return Given(key, read_toml_value(key, entry.value, where), where, Rank.FILE)

    def _unknown_path(self, path: TomlPath) -> str:
        name = ".".join(path)
        if path in self._tables:
            return f"{name}: expected a table, [{name}]"
        # Users who know the INI file write its names.
        elsewhere = [key.toml_name for key in self.keys if path[-1] in (key.name, key.toml_path[-1])]
        here = [each[-1] for each in self._by_path if each[:-1] == path[:-1]]
        near = nearest(path[-1], here, f"`{'.'.join((*path[:-1], '{}'))}`")
        hint = f"; it is `{elsewhere[0]}`" if len(elsewhere) == 1 else near
        return f"unknown key `{name}`{hint}"

    def _from_environment(self, environment: Mapping[str, str], problems: Problems) -> Iterator[Given]:
        for key in self.keys:
            if key.also and (text := environment.get(key.also)):
                where = f"environment variable {key.also}"
                with problems.noting():
                    yield Given(key, read_value(key, text, where), where, Rank.OTHER_VARIABLE)
        for variable, value in environment.items():
            if not variable.startswith(self._prefix):
                continue
            with problems.noting():
                known = self._by_variable.get(variable)
                if known is None:
                    hint = nearest(variable, self._by_variable, "{}")
                    raise ConfigError(f"unknown environment variable {variable}{hint}")
                where = f"environment variable {variable}"
                yield Given(known, read_value(known, value, where), where, Rank.VARIABLE)

    def _from_command_line(self, texts: Iterable[str], problems: Problems) -> Iterator[Given]:
        names = {key.variable.removeprefix(self._prefix).lower(): key for key in self.keys}
        names |= {key.toml_name: key for key in self.keys}
        for text in texts:
            name, equals, value = text.partition("=")
            with problems.noting():
                if not equals or name not in names:
                    hint = nearest(name, names, "`{}`") if equals else ": write NAME=VALUE"
                    raise ConfigError(f"--set: unknown key `{name}`{hint}")
                where = f"{COMMAND_LINE}, --set {name}"
                yield Given(names[name], read_value(names[name], value, where), where, Rank.COMMAND_LINE)

    def _with(self, settings: Any, path: str, value: Any) -> Any:
        """A copy of the settings with another value at the path."""
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
        """Whether to show this key: if several set the same setting, only the used one or the first."""
        same = [each for each in self.keys if each.setting == key.setting and each.switch == key.switch]
        used = [each for each in same if each.variable in sources]
        by_command_line = [each for each in used if sources[each.variable].startswith(COMMAND_LINE)]
        by_environment = [each for each in used if each.variable in sources[each.variable]]
        return (by_command_line or by_environment or used or same)[0] is key

    def _with_toml_names(self, sentence: str) -> str:
        def toml_name(found: re.Match[str]) -> str:
            key = self._by_name.get((found[1], found[2]))
            return found[0] if key is None else key.toml_name

        return re.sub(r"\[([A-Z_]+)\] (\w+)", toml_name, sentence)


def _text(key: SettingKey, settings: Any) -> str:
    value = settings
    for name in (key.setting or "").split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if key.switch:
        return key.kind.write(value is not None)
    if key.secret:
        return NONE if value is None else HIDDEN
    return "off" if value is None else key.kind.write(value)


def default_text(key: SettingKey, defaults: Any) -> str:
    if key.shown is not None:
        return key.shown
    return "" if key.secret or key.setting is None else _text(key, defaults)
