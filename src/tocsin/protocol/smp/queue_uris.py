"""Queue URIs, which people exchange out of band (smp.md 1.3).

smp://<keyhash>@<hosts>[:port]/<senderId>#/?v=<versions>&dh=<key>[&q=m|&q=c][&k=s][&srv=<more hosts>]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qs, quote, unquote

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.errors import BadKey, DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme, bounded_hosts, parse_host
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.wire.base64url import decode_base64url, encode_base64url
from tocsin.wire.versions import VersionRange

MULTIPLE_HOSTS_VERSION: Final = 2
"""Client version 2: several hosts in the address itself; version 1 clients find them in `srv=`."""
SHORT_LINKS_CLIENT_VERSION: Final = 4
"""Client version 4: `q=m`; older clients look for `k=s`."""
MAX_URI_CHARACTERS: Final = 4096

_URI: Final = re.compile(r"(smp://[^/]+)/([^#/?]*)/?#/\?(.+)", re.DOTALL)
_VERSIONS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_MAX_VERSION: Final = 0xFFFF
_MODES: Final = {"m": QueueMode.MESSAGING, "c": QueueMode.CONTACT}


@dataclass(frozen=True, slots=True)
class QueueUri:
    """Everything that a sender needs to know about a queue."""

    location: RouterLocation
    sender_id: bytes
    client_versions: VersionRange
    """Versions of the SMP client layer (1 to 4), not of the relay protocol."""
    dh_key: X25519PublicKey
    mode: QueueMode | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text. Raises `DecodeError`, which names the wrong part."""
        found = _URI.fullmatch(text) if len(text) <= MAX_URI_CHARACTERS else None
        if found is None:
            raise DecodeError("not a queue URI: smp://keyhash@host/senderId#/?v=…&dh=… is expected")
        address = RouterAddress.parse(found[1])
        parameters = _parameters(found[3])
        more_hosts = tuple(
            parse_host(host) for host in ",".join(parameters.get("srv", [])).split(",") if host
        )
        location = RouterLocation(
            bounded_hosts(address.location.hosts + more_hosts),
            address.location.port,
            address.location.key_hash,
        )
        return cls(
            location,
            _octets(unquote(found[2]), "the sender id"),
            _client_versions(_only(parameters, "v")),
            _dh_key(_only(parameters, "dh")),
            _mode(parameters),
        )

    def __str__(self) -> str:
        hosts, more_hosts = self.location.hosts, ""
        if self.client_versions.lowest < MULTIPLE_HOSTS_VERSION and len(hosts) > 1:
            hosts, more_hosts = hosts[:1], "&srv=" + quote(",".join(hosts[1:]))
        shown = RouterLocation(hosts, self.location.port, self.location.key_hash).text(Scheme.SMP)
        query = f"v={self.client_versions}&dh={quote(encode_base64url(self.dh_key.der))}"
        if self.mode is not None:
            query += f"&q={self.mode.value.decode().lower()}"
        if self.mode is QueueMode.MESSAGING and self.client_versions.lowest < SHORT_LINKS_CLIENT_VERSION:
            query += "&k=s"
        return f"{shown}/{encode_base64url(self.sender_id)}#/?{query}{more_hosts}"


def _parameters(query: str) -> dict[str, list[str]]:
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise DecodeError("a queue URI with too many parameters") from error


def _only(parameters: dict[str, list[str]], name: str) -> str:
    values = parameters.get(name, [])
    if len(values) != 1:
        raise DecodeError(f"a queue URI needs exactly one parameter {name}")
    return values[0]


def _client_versions(text: str) -> VersionRange:
    found = _VERSIONS.fullmatch(text)
    if found is None or not int(found[1]) <= int(found[2] or found[1]) <= _MAX_VERSION:
        raise DecodeError(f"{text[:16]!r}: a version or a range of versions is expected")
    return VersionRange(int(found[1]), int(found[2] or found[1]))


def _octets(text: str, what: str) -> bytes:
    try:
        return decode_base64url(text)
    except DecodeError as error:
        raise DecodeError(f"{what} of a queue URI: {error}") from error


def _dh_key(text: str) -> X25519PublicKey:
    try:
        return dh_key_from_der(_octets(text, "parameter dh"))
    except BadKey as error:
        raise DecodeError(f"parameter dh of a queue URI: {error}") from error


def _mode(parameters: dict[str, list[str]]) -> QueueMode | None:
    if "q" in parameters:
        letter = _only(parameters, "q")
        if letter not in _MODES:
            raise DecodeError(f"queue mode {letter[:16]!r}: m or c is expected")
        return _MODES[letter]
    return QueueMode.MESSAGING if parameters.get("k") == ["s"] else None
