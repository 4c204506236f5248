"""Addresses of channels between a router and the job that need no shared folder.

tls://host:port                  the router listens there; for the job with the router's fingerprint before an @
s3://bucket/folder               object storage (also gs://, az://, abfs://, abfss://)
kafka://broker:port,…/name       the topics NAME-rows and NAME-outcomes
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import KEY_HASH_BYTES, parse_hosts_and_port
from tocsin.wire.base64url import decode_base64url

TLS: Final = "tls"
STORAGE: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")


class TlsPlace(NamedTuple):
    host: str
    port: int
    fingerprint: bytes | None
    """The router's fingerprint, if the address names it."""


def scheme_of(place: str) -> str | None:
    """Return the scheme of an address, or None for a folder."""
    scheme, separator, _ = place.partition("://")
    return scheme if separator else None


def check_address(address: str) -> None:
    """Raises ConfigError for an address that no channel has."""
    match scheme_of(address):
        case "tls":
            tls_place(address)
        case "kafka":
            kafka_place(address)
        case scheme if scheme in STORAGE:
            storage_place(address)
        case _:
            raise unknown_address(address)


def unknown_address(address: str) -> ConfigError:
    return ConfigError(
        f"cannot hand over at {address}: an address begins with tls://, kafka://, "
        + ", ".join(f"{each}://" for each in STORAGE)
    )


def kafka_place(address: str) -> tuple[str, str]:
    """Return the brokers and the name of the topics. Raises ConfigError."""
    brokers, _, name = address.partition("://")[2].partition("/")
    if not brokers or not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", name):
        raise ConfigError(f"cannot use {address}: write kafka://broker:port,broker:port/name")
    return brokers, name


def storage_place(address: str) -> str:
    """Return the address without a slash at the end. Raises ConfigError without a bucket and a folder."""
    bucket, _, folder = address.partition("://")[2].partition("/")
    if not bucket or not folder.strip("/"):
        raise ConfigError(
            f"cannot use {address}: name a bucket and a folder for this router only, as in s3://b/ntf-1"
        )
    return address.rstrip("/")


def tls_place(address: str) -> TlsPlace:
    """Raises ConfigError."""
    fingerprint_text, at, rest = address.partition("://")[2].rpartition("@")
    wrong = f"cannot use {address}: write tls://host:port, for the job tls://FINGERPRINT@host:port"
    try:
        hosts, port = parse_hosts_and_port(rest)
        fingerprint = decode_base64url(fingerprint_text) if at else None
    except DecodeError as error:
        raise ConfigError(f"{wrong} ({error})") from error
    if len(hosts) != 1 or not port or (fingerprint is not None and len(fingerprint) != KEY_HASH_BYTES):
        raise ConfigError(wrong)
    return TlsPlace(hosts[0], int(port), fingerprint)
