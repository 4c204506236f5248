"""`smp-server.ini` and the environment: to settings, from settings, and a new file.

The environment wins over the file, and the file over the defaults. What is not known is refused by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tocsin.config.ini_files import IniEntry, IniFile, read_ini
from tocsin.config.smp_keys import ENVIRONMENT_PREFIX, SECTIONS, SMP_KEYS, SmpKey
from tocsin.config.smp_settings import SmpSettings
from tocsin.errors import ConfigError

INI_FILE: Final = "smp-server.ini"
_HIDDEN: Final = "(hidden)"
_BY_NAME: Final = {(key.section, key.name): key for key in SMP_KEYS}
_BY_VARIABLE: Final = {key.variable: key for key in SMP_KEYS}


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

    key: SmpKey
    value: Any = field(repr=False)
    source: str
    rank: int
    """Of its source: 1 file, 2 environment."""


def load_smp_settings(path: Path, environment: Mapping[str, str]) -> SmpSettings:
    """Raises ConfigError naming file and line, or variable, the key, and what is expected.

    Relative paths in the file, and certificates if it does not say where they are, are looked for in its folder.
    """
    file = read_ini(path)
    _refuse_unknown_sections(file)
    given = [_from_entry(entry, file.name) for entry in file.entries]
    given += _from_environment(environment)
    settings = _apply(replace(SmpSettings(), credentials=path.parent), _strongest(given))
    settings = replace(
        settings,
        credentials=path.parent / settings.credentials,
        store=None if settings.store is None else path.parent / settings.store,
        sources={each.key.variable: each.source for each in given},
    )
    _check_together(settings)
    return settings


def describe(settings: SmpSettings) -> list[DescribedSetting]:
    """Every setting, with passwords hidden."""
    lines = []
    for key in SMP_KEYS:
        if key.setting is not None and _speaks_for_its_setting(key, settings.sources):
            source = settings.sources.get(key.variable, "default")
            lines.append(DescribedSetting(f"[{key.section}] {key.name}", _text(key, settings), source))
    return lines


def new_ini(chosen: Mapping[str, str]) -> str:
    """A commented file with every key; those in `chosen` are set, the others stand there with their defaults."""
    defaults = SmpSettings()
    lines = [
        "# Settings of an SMP router. Lines with # show the defaults; remove the # to change one.",
        "# An environment variable overrides a key: its name in capitals after TOCSIN_SMP_, for example",
        "# TOCSIN_SMP_PORT. `tocsin smp config show` tells every setting and where it comes from.",
    ]
    section = None
    for key in SMP_KEYS:
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


def checked_value(section: str, name: str, value: str, where: str) -> Any:
    """The value as the settings have it. Raises ConfigError, which begins with `where`."""
    return _read(_BY_NAME[section, name], value, where)


def _refuse_unknown_sections(file: IniFile) -> None:
    for section in file.sections:
        if section.name not in SECTIONS:
            nearest = _nearest(section.name, SECTIONS, "[{}]")
            raise ConfigError(f"{file.name}, line {section.line}: unknown section [{section.name}]{nearest}")


def _from_entry(entry: IniEntry, file: str) -> _Given:
    where = f"{file}, line {entry.line}"
    key = _BY_NAME.get((entry.section, entry.key))
    if key is None:
        here = [key.name for key in SMP_KEYS if key.section == entry.section]
        elsewhere = [key.section for key in SMP_KEYS if key.name == entry.key]
        nearest = f"; it belongs to [{elsewhere[0]}]" if elsewhere else _nearest(entry.key, here, "`{}`")
        raise ConfigError(f"{where}: unknown key `{entry.key}` in [{entry.section}]{nearest}")
    return _Given(key, _read(key, entry.value, where), where, rank=1)


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        key = _BY_VARIABLE.get(variable)
        if key is None:
            raise ConfigError(
                f"unknown environment variable {variable}{_nearest(variable, _BY_VARIABLE, '{}')}"
            )
        where = f"environment variable {variable}"
        yield _Given(key, _read(key, value, where), where, rank=2)


def _read(key: SmpKey, text: str, where: str) -> Any:
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


def _apply(settings: SmpSettings, given: Iterable[_Given]) -> SmpSettings:
    changes: dict[str, Any] = {}
    proxy_changes: dict[str, Any] = {}
    for each in given:
        key = each.key
        if key.setting is None or (key.switch and each.value):
            continue
        value = None if key.switch else each.value
        part, _, name = key.setting.rpartition(".")
        (proxy_changes if part else changes)[name] = value
    return replace(settings, **changes, proxy=replace(settings.proxy, **proxy_changes))


def _check_together(settings: SmpSettings) -> None:
    """Values that are right alone and wrong together."""
    if settings.lowest_version > settings.highest_version:
        raise ConfigError(
            f"[TOCSIN] lowest_version {settings.lowest_version} is above "
            f"highest_version {settings.highest_version}"
        )
    ports = [port for port in (*settings.ports, settings.control_port, settings.prometheus_port) if port]
    if len(set(ports)) != len(ports):
        raise ConfigError("port, control_port and prometheus_port: each must be another port")
    passwords = settings.control_port_admin_password, settings.control_port_user_password
    if passwords[0] is not None and passwords[0] == passwords[1]:
        raise ConfigError("control_port_admin_password and control_port_user_password must differ")
    for key, wish in (
        ("log_stats", settings.log_stats),
        ("prometheus_interval", settings.prometheus_interval),
    ):
        if wish and settings.store is None:
            raise ConfigError(f"[STORE_LOG] {key} writes files, but `enable: off` leaves no folder for them")


def _speaks_for_its_setting(key: SmpKey, sources: Mapping[str, str]) -> bool:
    """Of several keys for one setting, the one that was used is shown, or the first."""
    same = [each for each in SMP_KEYS if each.setting == key.setting and each.switch == key.switch]
    used = [each for each in same if each.variable in sources]
    by_environment = [each for each in used if each.variable in sources[each.variable]]
    return (by_environment or used or same)[0] is key


def _text(key: SmpKey, settings: SmpSettings) -> str:
    value: Any = settings
    for name in (key.setting or "").split("."):
        value = getattr(value, name)
    if key.switch:
        return key.kind.write(value is not None)
    if key.secret:
        return "(none)" if value is None else _HIDDEN
    return "off" if value is None else key.kind.write(value)


def _default_text(key: SmpKey, defaults: SmpSettings) -> str:
    if key.setting is None:
        return {"websockets": "off"}.get(key.name, "memory")
    if key.name == "credentials":
        return "."
    return "" if key.secret else _text(key, defaults)
