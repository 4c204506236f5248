"""`ntf-server.ini` or `ntf-server.toml`, and what overrides it: to settings, from settings, and a new file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tocsin.ntf_router.settings.keys import NO_HOST, NTF_KEYS, NtfSettingKey
from tocsin.ntf_router.settings.settings import DeliveryEngine, NtfSettings, StoreKind
from tocsin.operate.settings.keyed_settings import DescribedSetting, KeyedSettings
from tocsin.operate.settings.operation_checks import operation_problems
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

INI_FILE: Final = "ntf-server.ini"
TOML_FILE: Final = "ntf-server.toml"
STORE_VARIABLE: Final = f"{NtfSettingKey.environment_prefix}STORE"

_NOT_SAID: Final = " "
"""In place of a host, in no file: for an environment of which only something else is set."""
_FILE: Final = KeyedSettings[NtfSettings](NTF_KEYS, missing=lambda _name: ApnsEndpoint(_NOT_SAID))
_HEADING: Final = (
    "Settings of an NTF router. Lines with # show the defaults; remove the # to change one.",
    "An environment variable overrides a key: its name in capitals after TOCSIN_NTF_, for example",
    "TOCSIN_NTF_PORT. `tocsin ntf config show` tells every setting and where it comes from.",
)


def load_ntf_settings(
    path: Path, environment: Mapping[str, str], command_line: Iterable[str] = ()
) -> NtfSettings:
    """Raises ConfigError naming file and line, or variable, the key, and what is expected.

    Relative paths in the file, and certificates if it does not say where they are, are looked for in its folder.
    """
    defaults = replace(NtfSettings(), credentials=Path())
    settings = _with_paths_from(path.parent, _FILE.load(path, environment, defaults, command_line))
    if settings.database_url is not None and STORE_VARIABLE not in settings.sources:
        settings = replace(settings, store_kind=StoreKind.URL)
    _FILE.raise_together(path, _problems_together(settings))
    settings = replace(settings, apns=_without_missing_endpoints(settings.apns))
    return settings if settings.disconnect_inactive else replace(settings, inactive_ttl=None)


def describe(settings: NtfSettings) -> list[DescribedSetting]:
    """Every setting, with passwords hidden."""
    return _FILE.describe(settings)


def new_ini(chosen: Mapping[str, str]) -> str:
    """A commented file with every key; those in `chosen` are set, the others stand there with their defaults."""
    return _FILE.new_file(_HEADING, chosen, NtfSettings())


def new_toml(chosen: Mapping[str, str]) -> str:
    """The same in TOML; `chosen` has the names and texts of INI."""
    return _FILE.new_file(_HEADING, chosen, NtfSettings(), toml=True)


def checked_value(section: str, name: str, value: str, where: str) -> Any:
    """The value as the settings have it. Raises ConfigError, which begins with `where`."""
    return _FILE.checked_value(section, name, value, where)


def _with_paths_from(folder: Path, settings: NtfSettings) -> NtfSettings:
    def here(path: Path | None) -> Path | None:
        return None if path is None else folder / path

    endpoints = {
        name: replace(endpoint, ca_file=here(endpoint.ca_file))
        for name, endpoint in settings.apns.endpoints.items()
    }
    return replace(
        settings,
        credentials=folder / settings.credentials,
        certificate_file=here(settings.certificate_file),
        private_key_file=here(settings.private_key_file),
        authority_file=here(settings.authority_file),
        store=here(settings.store),
        event_log=here(settings.event_log),
        event_log_keys=here(settings.event_log_keys),
        apns=replace(settings.apns, key_file=here(settings.apns.key_file), endpoints=endpoints),
        webpush=replace(
            settings.webpush,
            key_file=folder / settings.webpush.key_file,
            ca_file=here(settings.webpush.ca_file),
        ),
        delivery=replace(
            settings.delivery,
            handover=here(settings.delivery.handover),
            handover_keys=here(settings.delivery.handover_keys),
        ),
    )


def _without_missing_endpoints(apns: ApnsSettings) -> ApnsSettings:
    """`off` as a host, and nothing else, is an environment that is not served."""
    served = {name: each for name, each in apns.endpoints.items() if each.host not in (NO_HOST, _NOT_SAID)}
    return replace(apns, endpoints=served)


def _problems_together(settings: NtfSettings) -> Iterator[str]:
    """Values that are right alone and wrong together."""
    for name, endpoint in settings.apns.endpoints.items():
        if endpoint.host == _NOT_SAID and endpoint != ApnsEndpoint(_NOT_SAID):
            yield f"[TOCSIN] {name}_host is not set, but another key of {name} is: set it too"
    if settings.disconnect_inactive and settings.inactive_ttl is None:
        yield "[INACTIVE_CLIENTS] disconnect is on, but ttl is not set: after how many seconds?"
    if settings.store_kind is StoreKind.URL and settings.database_url is None:
        yield "[TOCSIN] store is url, but [STORE_LOG] db_connection is not set"
    if settings.certificate_file is None and settings.private_key_file is not None:
        yield "[TOCSIN] private_key_file is set, but certificate_file is not"
    if settings.delivery.engine is DeliveryEngine.SPARK and settings.delivery.handover is None:
        yield "[TOCSIN] delivery_engine is spark, but [TOCSIN] delivery_handover is not set: to which folder?"
    if settings.webpush.enabled and settings.webpush.subject is None:
        yield (
            "[TOCSIN] webpush is on, but [TOCSIN] webpush_subject is not set: "
            "where do push services find you if something is wrong?"
        )
    if settings.direct.enabled and not settings.public_hosts:
        yield "[TOCSIN] direct_notifications is on, but [TRANSPORT] host is not set: which one is it?"
    if not settings.direct.key_rotation < settings.direct.key_lifetime:
        yield "[TOCSIN] direct_key_rotation must be shorter than [TOCSIN] direct_key_lifetime"
    yield from operation_problems(settings)
