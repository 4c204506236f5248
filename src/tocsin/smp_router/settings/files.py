"""`smp-server.ini` or `smp-server.toml`, and what overrides it: to settings, from settings, and a new file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tocsin.operate.router_files import address_of
from tocsin.operate.settings.keyed_settings import DescribedSetting, KeyedSettings
from tocsin.operate.settings.operation_checks import operation_problems
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.settings import SmpSettings

INI_FILE: Final = "smp-server.ini"
TOML_FILE: Final = "smp-server.toml"
_FILE: Final = KeyedSettings[SmpSettings](SMP_KEYS)
_HEADING: Final = (
    "Settings of an SMP router. Lines with # show the defaults; remove the # to change one.",
    "An environment variable overrides a key: its name in capitals after TOCSIN_SMP_, for example",
    "TOCSIN_SMP_PORT. `tocsin smp config show` tells every setting and where it comes from.",
)


def load_smp_settings(
    path: Path, environment: Mapping[str, str], command_line: Iterable[str] = ()
) -> SmpSettings:
    """Raises ConfigError naming file and line, or variable, the key, and what is expected.

    Relative paths in the file, and certificates if it does not say where they are, are looked for in its folder.
    """
    defaults = replace(SmpSettings(), credentials=Path())
    settings = _FILE.load(path, environment, defaults, command_line)
    settings = replace(
        settings,
        credentials=path.parent / settings.credentials,
        store=None if settings.store is None else path.parent / settings.store,
        event_log=None if settings.event_log is None else path.parent / settings.event_log,
        event_log_keys=None if settings.event_log_keys is None else path.parent / settings.event_log_keys,
    )
    _FILE.raise_together(path, _problems_together(settings))
    return settings


def describe(settings: SmpSettings) -> list[DescribedSetting]:
    """Every setting, with passwords hidden."""
    return _FILE.describe(settings)


def new_ini(chosen: Mapping[str, str]) -> str:
    """A commented file with every key; those in `chosen` are set, the others stand there with their defaults."""
    return _FILE.new_file(_HEADING, chosen, SmpSettings())


def new_toml(chosen: Mapping[str, str]) -> str:
    """The same in TOML; `chosen` has the names and texts of INI."""
    return _FILE.new_file(_HEADING, chosen, SmpSettings(), toml=True)


def checked_value(section: str, name: str, value: str, where: str) -> Any:
    """The value as the settings have it. Raises ConfigError, which begins with `where`."""
    return _FILE.checked_value(section, name, value, where)


def _problems_together(settings: SmpSettings) -> Iterator[str]:
    """Values that are right alone and wrong together."""
    yield from operation_problems(settings)
    if settings.direct.retry_initial > settings.direct.retry_maximum:
        yield "[TOCSIN] direct_retry_initial is above direct_retry_maximum"
    for key, wish in (
        ("log_stats", settings.log_stats),
        ("prometheus_interval", settings.prometheus_interval),
    ):
        if wish and settings.store is None:
            yield f"[STORE_LOG] {key} writes files, but `enable: off` leaves no folder for them"


DEFAULT_FOLDER: Final = Path("/etc/opt/simplex")
DEFAULT_STORE: Final = Path("/var/opt/simplex")


def router_address(settings: SmpSettings, fingerprint: bytes, *, with_password: bool) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    password = settings.create_password if with_password else None
    return address_of(Scheme.SMP, settings.public_hosts, settings.ports, fingerprint, password)
