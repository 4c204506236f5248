"""The settings of an NTF router from `ntf-server.ini` or `ntf-server.toml`, the environment and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.settings.keys import NO_HOST, NTF_KEYS, NtfSettingKey
from tocsin.ntf_router.settings.settings import DeliveryEngine, NtfSettings, StoreKind
from tocsin.operate.router_files import address_of
from tocsin.operate.settings.keyed_settings import KeyedSettings
from tocsin.operate.settings.problems import operation_problems
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, WebPushSettings
from tocsin.transport.credential_files import read_credentials

REFERENCE_VAPID_KEY: Final = "vapid.privkey"
"""The file of the VAPID key that the reference's branch makes (ntf-webpush.md 5)."""
STORE_VARIABLE: Final = f"{NtfSettingKey.environment_prefix}STORE"

_UNSET_HOST: Final = " "
"""The host of an APNs environment that has other keys but no host. No file can contain it."""
_KEYED: Final = KeyedSettings[NtfSettings](NTF_KEYS, missing=lambda _name: ApnsEndpoint(_UNSET_HOST))


def load_ntf_settings(
    path: Path, environment: Mapping[str, str], command_line: Iterable[str] = ()
) -> NtfSettings:
    """Raises ConfigError naming the file and line, or the variable, the key, and the expected value.

    Relative paths in the file start at its folder. Certificates are in that folder unless the file names another.
    """
    defaults = replace(NtfSettings(), credentials=Path())
    settings = _with_paths_from(path.parent, _KEYED.load(path, environment, defaults, command_line))
    if settings.database_url is not None and STORE_VARIABLE not in settings.sources:
        settings = replace(settings, store_kind=StoreKind.URL)
    _KEYED.raise_together(path, _contradictions(settings))
    settings = replace(settings, apns=_without_missing_endpoints(settings.apns))
    return settings if settings.disconnect_inactive else replace(settings, inactive_ttl=None)


NTF_FILE: Final = RouterSettings(
    "ntf",
    _KEYED,
    NtfSettings(),
    load_ntf_settings,
    Path("/etc/opt/simplex-notifications"),
    Path("/var/opt/simplex-notifications"),
    folder_variable="NTF_SERVER_CFG_PATH",
    store_variable="NTF_SERVER_LOG_PATH",
)


def credentials_of(settings: NtfSettings) -> Credentials:
    return read_credentials(
        settings.credentials,
        certificate_file=settings.certificate_file,
        key_file=settings.private_key_file,
        authority_file=settings.authority_file,
    )


def router_address(settings: NtfSettings, fingerprint: bytes) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    return address_of(Scheme.NTF, settings.public_hosts, settings.ports, fingerprint)


def _vapid_key_file(folder: Path, named: Path) -> Path:
    """Return the file of the VAPID key: that of the reference if it is there and nothing else is named or made."""
    path, theirs = folder / named, folder / REFERENCE_VAPID_KEY
    is_theirs = named == WebPushSettings().key_file and theirs.exists() and not path.exists()
    return theirs if is_theirs else path


def _in_store(store: Path | None, named: Path | None) -> Path | None:
    return None if store is None or named is None else store / named


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
            key_file=_vapid_key_file(folder, settings.webpush.key_file),
            ca_file=here(settings.webpush.ca_file),
        ),
        fcm=replace(settings.fcm, key_file=here(settings.fcm.key_file), ca_file=here(settings.fcm.ca_file)),
        delivery=replace(
            settings.delivery,
            handover=here(settings.delivery.handover),
            handover_keys=here(settings.delivery.handover_keys),
            choices=_in_store(here(settings.store), settings.delivery.choices),
        ),
    )


def _without_missing_endpoints(apns: ApnsSettings) -> ApnsSettings:
    """Drop environments whose host is `off`: the router does not serve them."""
    served = {name: each for name, each in apns.endpoints.items() if each.host not in (NO_HOST, _UNSET_HOST)}
    return replace(apns, endpoints=served)


def _contradictions(settings: NtfSettings) -> Iterator[str]:
    """Values that are valid alone and wrong together."""
    for name, endpoint in settings.apns.endpoints.items():
        if endpoint.host == _UNSET_HOST and endpoint != ApnsEndpoint(_UNSET_HOST):
            yield f"[TOCSIN] {name}_host is not set, but another key of {name} is: set the host, or remove that key"
    if settings.disconnect_inactive and settings.inactive_ttl is None:
        yield "[INACTIVE_CLIENTS] disconnect is on, but ttl is not set: set it to a number of seconds"
    if settings.store_kind is StoreKind.URL and settings.database_url is None:
        yield "[TOCSIN] store is url, but [STORE_LOG] db_connection is not set: set it to the URL of the database"
    if settings.certificate_file is None and settings.private_key_file is not None:
        yield "[TOCSIN] private_key_file is set, but certificate_file is not: set both or neither"
    engine = settings.delivery.engine
    delivery = settings.delivery
    if (
        engine is not DeliveryEngine.INLINE
        and delivery.handover is None
        and delivery.handover_address is None
    ):
        yield (
            f"[TOCSIN] delivery_engine is {engine.value}, but [TOCSIN] delivery_handover is not set: name its folder, "
            "or set delivery_handover_address"
        )
    if delivery.handover is not None and delivery.handover_address is not None:
        yield "[TOCSIN] delivery_handover and delivery_handover_address are both set: use one channel"
    if settings.webpush.enabled and settings.webpush.subject is None:
        yield (
            "[TOCSIN] webpush is on, but [TOCSIN] webpush_subject is not set: "
            "set it to a mailto: or https: address at which push services can reach you"
        )
    if not settings.direct.key_rotation < settings.direct.key_lifetime:
        yield "[TOCSIN] direct_key_rotation must be shorter than [TOCSIN] direct_key_lifetime"
    lowest, highest = settings.subscriber.lowest_version, settings.subscriber.highest_version
    if lowest > highest:
        yield f"[TOCSIN] smp_lowest_version {lowest} is above [TOCSIN] smp_highest_version {highest}"
    yield from operation_problems(settings)
