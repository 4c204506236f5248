"""The settings of an SMP router from `smp-server.ini` or `smp-server.toml`, the environment and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.operate.router_files import address_of
from tocsin.operate.settings.keyed_settings import KeyedSettings
from tocsin.operate.settings.problems import operation_problems
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.smp_router.settings.keys import SMP_KEYS
from tocsin.smp_router.settings.name_keys import name_problems
from tocsin.smp_router.settings.settings import SmpSettings

_KEYED: Final = KeyedSettings[SmpSettings](SMP_KEYS)


def load_smp_settings(
    path: Path, environment: Mapping[str, str], command_line: Iterable[str] = ()
) -> SmpSettings:
    """Raises ConfigError naming the file and line, or the variable, the key, and the expected value.

    Relative paths in the file start at its folder. Certificates are in that folder unless the file names another.
    """
    defaults = replace(SmpSettings(), credentials=Path())
    settings = _KEYED.load(path, environment, defaults, command_line)
    settings = replace(
        settings,
        credentials=path.parent / settings.credentials,
        store=None if settings.store is None else path.parent / settings.store,
        event_log=None if settings.event_log is None else path.parent / settings.event_log,
        event_log_keys=None if settings.event_log_keys is None else path.parent / settings.event_log_keys,
    )
    _KEYED.raise_together(path, _contradictions(settings))
    return settings


SMP_FILE: Final = RouterSettings(
    "smp", _KEYED, SmpSettings(), load_smp_settings, Path("/etc/opt/simplex"), Path("/var/opt/simplex")
)


def _contradictions(settings: SmpSettings) -> Iterator[str]:
    """Values that are valid alone and wrong together."""
    yield from operation_problems(settings)
    yield from name_problems(settings.names)
    if settings.direct.retry_initial > settings.direct.retry_maximum:
        yield "[TOCSIN] direct_retry_initial is above direct_retry_maximum: lower it, or raise the maximum"
    for key, is_on in (
        ("log_stats", settings.log_stats),
        ("prometheus_interval", settings.prometheus_interval),
    ):
        if is_on and settings.store is None:
            yield (
                f"[STORE_LOG] {key} writes files, but `enable: off` leaves no folder for them: "
                "turn one of the two off"
            )


def router_address(
    settings: SmpSettings, fingerprint: bytes, *, with_password: bool = False
) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    password = settings.create_password if with_password else None
    return address_of(Scheme.SMP, settings.public_hosts, settings.ports, fingerprint, password)
