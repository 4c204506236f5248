"""Router addresses: their text, their binary form, and the hosts inside (smp.md 1.3, ntf.md 1.1, 2.1).

server = scheme "://" keyhash [ ":" password ] "@" host *( "," host ) [ ":" port ]
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Self

from tocsin.errors import DecodeError
from tocsin.wire.base64url import decode_base64url, encode_base64url
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

KEY_HASH_BYTES: Final = 32
MAX_ADDRESS_CHARACTERS: Final = 4096
MAX_HOSTS_CHARACTERS: Final = 2048
"""Length limit of all hosts of a router together, so that they fit a push and can be read back."""


class Scheme(StrEnum):
    SMP = "smp"
    NTF = "ntf"
    XFTP = "xftp"


DEFAULT_PORTS: Final = {Scheme.SMP: 5223, Scheme.NTF: 443, Scheme.XFTP: 443}

_ONION: Final = re.compile(r"[a-z0-9]+\.onion")
_DOMAIN: Final = re.compile(r"[^:#,;/ \r\n\t]+")
_IPV4_START: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)")
_PASSWORD: Final = re.compile(r"[^\s@:/]+")
_BRACKETED: Final = re.compile(r"(\[[^\]]*\])(?::(.*))?", re.DOTALL)
_PORT: Final = re.compile(r"[0-9]{1,5}")
_ADDRESS: Final = re.compile(r"([a-z]+)://([^:@]+)(?::([^@]*))?@(.+)", re.DOTALL)

# The preset routers that older clients know by one host only; the second is theirs too (ntf.md 2.1).
LEGACY_ONION_HOSTS: Final = {
    "smp4.simplex.im": "o5vmywmrnaxalvz6wi3zicyftgio6psuvyniis6gco6bp6ekl4cqj4id.onion",
    "smp5.simplex.im": "jjbyvoemxysm7qxap7m5d5m35jzv5qq6gnlv7s4rsn7tdwwmuqciwpid.onion",
    "smp6.simplex.im": "bylepyau3ty4czmn77q4fglvperknl4bi2eb2fdy2bh4jxtf32kf73yd.onion",
    "smp8.simplex.im": "beccx4yfxxbvyhqypaavemqurytl6hozr47wfc7uuecacjqdvwpw2xid.onion",
    "smp9.simplex.im": "jssqzccmrcws6bhmn77vgmhfjmhwlyr3u7puw4erkyoosywgl67slqqd.onion",
    "smp10.simplex.im": "rb2pbttocvnbrngnwziclp2f4ckjq65kebafws6g4hy22cdaiv5dwjqd.onion",
}


def parse_host(text: str) -> str:
    """Return the canonical text of one host: IPv4, IPv6 (with or without brackets), onion or domain name."""
    if dotted := _IPV4_START.match(text):
        numbers = [int(number) for number in dotted.groups() if len(number) <= 3]
        if len(numbers) == 4 and max(numbers) <= 255:
            if dotted.end() != len(text):
                raise DecodeError(f"host {text!r}: more than an IPv4 address")
            return ".".join(map(str, numbers))
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    if _ONION.fullmatch(text):
        return text
    if text.endswith(".onion") or not _DOMAIN.fullmatch(text):
        raise DecodeError(f"host {text[:64]!r}: not an IP address, onion or domain name")
    return text


def _received_host(text: str) -> str:
    """Return a host that a stranger names. It reaches logs, pushes and databases, so it has no control characters.

    A domain name has no brackets either (v7.md 4). Only this place refuses them: a store may have some from before, and
    must be readable.
    """
    host = parse_host(text)
    if "[" in host or "]" in host:
        raise DecodeError(f"host {host[:64]!r}: brackets are for IPv6 addresses")
    if not host.isprintable():
        raise DecodeError(f"host {host[:64]!r}: a character that does not print")
    return host


def is_onion(host: str) -> bool:
    return host.endswith(".onion")


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text if "%" not in text else ""))
    except ValueError as error:
        raise DecodeError(f"host {text[:64]!r}: not an IPv6 address") from error


def parse_hosts_and_port(text: str) -> tuple[tuple[str, ...], str]:
    """`host,host:port`; the port belongs to all hosts and is empty when absent."""
    *others, last = text.split(",")
    host, port = _split_port(last)
    return bounded_hosts(tuple(parse_host(each) for each in (*others, host))), port


def bounded_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts, unless they are too long together."""
    if len(",".join(hosts)) > MAX_HOSTS_CHARACTERS:
        raise DecodeError(f"a router address with more than {MAX_HOSTS_CHARACTERS} characters of hosts")
    return hosts


def _split_port(text: str) -> tuple[str, str]:
    if bracketed := _BRACKETED.fullmatch(text):
        host, port = bracketed.groups()
        if port is None:
            return host, ""
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        return text, ""
    _require_port(port)
    return host, port


def _require_port(text: str) -> None:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise DecodeError(f"{text[:16]!r}: a port from 1 to 65535 is expected")


def _key_hash(data: bytes) -> bytes:
    if len(data) != KEY_HASH_BYTES:
        raise DecodeError(f"a key hash of {len(data)} bytes in a router address: 32 are expected")
    return data


@dataclass(frozen=True, slots=True)
class RouterLocation:
    """A router's hosts, port and identity: the binary form in PRXY and SNEW, and the identity of its queues.

    smpServer = u8 hostCount, hostCount * bs(host), bs(port), bs(keyHash)
    """

    hosts: tuple[str, ...]
    port: str
    """Decimal text, or empty for the protocol's default; kept as text because it is compared exactly."""
    key_hash: bytes
    """SHA-256 of the identity certificate."""

    def encode(self, out: WireWriter) -> None:
        out.non_empty_list(self.hosts, out.short_text).short_text(self.port).short_bytes(self.key_hash)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        hosts = bounded_hosts(body.non_empty_list(lambda: _received_host(body.short_text())))
        port = body.short_text()
        # The text of a location goes into pushes, stores and logs, so it must be readable again.
        if port:
            _require_port(port)
        return cls(hosts, port, _key_hash(body.short_bytes()))

    def with_legacy_onion(self) -> Self:
        """Return the same router as newer clients name it."""
        onion = LEGACY_ONION_HOSTS.get(self.hosts[0]) if len(self.hosts) == 1 else None
        return replace(self, hosts=(self.hosts[0], onion)) if onion else self

    def text(self, scheme: Scheme) -> str:
        return str(RouterAddress(scheme, self))

    def port_number(self, scheme: Scheme) -> int:
        """The port to dial."""
        return int(self.port) if self.port else DEFAULT_PORTS[scheme]


@dataclass(frozen=True, slots=True)
class RouterAddress:
    """A router's address as people write it, e.g. `smp://<key hash>@smp.example.com:5223`."""

    scheme: Scheme
    location: RouterLocation
    password: str | None = field(default=None, repr=False)
    """Needed to create queues or to use the proxy; not part of the router's identity."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text. Raises `DecodeError`, which names the wrong part."""
        found = _ADDRESS.fullmatch(text) if len(text) <= MAX_ADDRESS_CHARACTERS else None
        if found is None:
            raise DecodeError("not a router address: scheme://keyhash@host[,host][:port] is expected")
        scheme, key, password, where = found.groups()
        if scheme not in list(Scheme):
            raise DecodeError(f"address scheme {scheme[:16]!r}: smp, ntf or xftp is expected")
        try:
            key_bytes = decode_base64url(key)
        except DecodeError as error:
            raise DecodeError(f"the key hash of a router address: {error}") from error
        if password is not None and not (_PASSWORD.fullmatch(password) and password.isprintable()):
            raise DecodeError("the password of a router address has characters that are not allowed")
        if scheme == Scheme.NTF and password is not None:
            raise DecodeError("an ntf address has no password")
        hosts, port = parse_hosts_and_port(where)
        return cls(Scheme(scheme), RouterLocation(hosts, port, _key_hash(key_bytes)), password)

    @classmethod
    def of(cls, address: str | RouterAddress, scheme: Scheme) -> RouterAddress:
        """Return the address, parsed if it is text. Raises `DecodeError` if it belongs to another protocol."""
        found = cls.parse(address) if isinstance(address, str) else address
        if found.scheme is not scheme:
            raise DecodeError(f"an {scheme} address is expected, not an {found.scheme} one")
        return found

    @property
    def name(self) -> str:
        """The router's name in logs and metrics: its first host, and the port if it is not the usual one."""
        port = f":{self.location.port}" if self.location.port else ""
        return f"{self.location.hosts[0]}{port}"

    def __str__(self) -> str:
        password = "" if self.password is None else f":{self.password}"
        hosts = ",".join(
            f"[{host}]" if ":" in host and self.location.port else host for host in self.location.hosts
        )
        port = f":{self.location.port}" if self.location.port else ""
        return f"{self.scheme}://{encode_base64url(self.location.key_hash)}{password}@{hosts}{port}"

    @property
    def port_number(self) -> int:
        return self.location.port_number(self.scheme)
