"""Device tokens of the provider `webpush`: the endpoint, and the key for which pushes are encrypted.

token = 66 base64url characters of (auth 16 bytes, compressed public key 33 bytes), host [":" port] path ["?" query]

The scheme is https. A token has one form only, so that routers recognize a device that registers again.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final, Self

from tocsin.crypto.web_push import AUTH_BYTES, WebPushReceiver
from tocsin.errors import BadKey, DecodeError
from tocsin.wire.base64url import base64url_bytes, decode_base64url

MAX_WEB_PUSH_TOKEN_BYTES: Final = 300
"""The longest token that fits TNEW and TRPL in a block of NTF v2 and later, authorized with an Ed25519 key.

In v1 267 bytes fit, and with an X25519 key 284. Those of Mozilla, the longest in use, have 292.
"""
KEYS_CHARACTERS: Final = 66
HTTPS_PORT: Final = 443
MAX_HOST_CHARACTERS: Final = 253

_SCHEME: Final = "https://"
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]*\]|[^\[\]:]*)(?::([0-9]*))?")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_KEYS: Final = re.compile(rf"[A-Za-z0-9_-]{{{KEYS_CHARACTERS}}}")
_PORT: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class WebPushAddress:
    """An endpoint of a push service and the keys of its device. `parse` and `from_url` make and check it."""

    receiver: WebPushReceiver
    host: str
    """Lower case; an IPv6 address without brackets."""
    port: int
    path: str = field(repr=False)
    """Including the query. Anyone who knows it can send pushes, so it is a secret."""

    @property
    def origin(self) -> str:
        """The push service's origin, as VAPID names it (RFC 8292, 2)."""
        return _SCHEME + _authority(self.host, self.port)

    @property
    def url(self) -> str:
        return self.origin + self.path

    def token(self) -> bytes:
        keys = base64url_bytes(self.receiver.auth + self.receiver.compressed)[:KEYS_CHARACTERS]
        return keys + (_authority(self.host, self.port) + self.path).encode("ascii")

    @classmethod
    def parse(cls, token: bytes) -> Self:
        """Parse a token. Raises `DecodeError`, which names the fault."""
        _require_length(len(token))
        text = token.decode("latin-1")
        receiver = _receiver(text[:KEYS_CHARACTERS])
        address = cls(receiver, *_location(text[KEYS_CHARACTERS:]))
        if address.token() != token:
            raise DecodeError(
                "a Web Push token that is not in its one form: host in lower case, no port 443, a path"
            )
        return address

    @classmethod
    def from_url(cls, url: str, receiver: WebPushReceiver) -> Self:
        """Make a token from a distributor's URL. Raises `DecodeError`, which names the fault."""
        return cls(receiver, *endpoint_location(url))


def endpoint_location(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an endpoint. Raises `DecodeError`, which names the fault."""
    if url[: len(_SCHEME)].lower() != _SCHEME:
        raise DecodeError("a Web Push endpoint must be an https address")
    host, port, path = _location(url[len(_SCHEME) :])
    _require_length(KEYS_CHARACTERS + len(_authority(host, port) + path))
    return host, port, path


def _authority(host: str, port: int) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port == HTTPS_PORT else f"{bracketed}:{port}"


def _require_length(count: int) -> None:
    if count > MAX_WEB_PUSH_TOKEN_BYTES:
        raise DecodeError(
            f"a Web Push token of {count} bytes: {MAX_WEB_PUSH_TOKEN_BYTES} fit a block, "
            f"{MAX_WEB_PUSH_TOKEN_BYTES - KEYS_CHARACTERS} of them for the endpoint"
        )


def _receiver(text: str) -> WebPushReceiver:
    if not _KEYS.fullmatch(text):
        raise DecodeError(f"a Web Push token must begin with {KEYS_CHARACTERS} characters of base64url")
    keys = decode_base64url(text)
    try:
        return WebPushReceiver.from_compressed(keys[AUTH_BYTES:], keys[:AUTH_BYTES])
    except BadKey as error:
        raise DecodeError(f"the key of a Web Push token: {error}") from error


def _location(text: str) -> tuple[str, int, str]:
    """Return host, port and path of the text after `https://`."""
    end = re.search(r"[/?#]", text)
    authority, path = (text[: end.start()], text[end.start() :]) if end else (text, "")
    if "#" in path:
        raise DecodeError("a Web Push endpoint must not have a fragment")
    if "@" in authority:
        raise DecodeError("a Web Push endpoint must not have a user name or password")
    path = path if path.startswith("/") else "/" + path
    if not _PATH.fullmatch(path):
        raise DecodeError("the path of a Web Push endpoint has characters that are not allowed")
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not authority.isascii():
        raise DecodeError(
            f"host {authority[:64]!r} of a Web Push endpoint: a name or an IP address is expected"
        )
    host, port = found.groups()
    return _host(host.lower()), HTTPS_PORT if port is None else _port(port), path


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise DecodeError(f"{text[:16]!r}: a port from 1 to 65535 is expected")
    return int(text)


def _host(text: str) -> str:
    """Check a name or an IP address. Refuses numbers that resolvers read as IPv4 addresses in other forms."""
    labels = text.split(".")
    try:
        if text.startswith("["):
            return _ipv6(text[1:-1])
        if _NUMBER.fullmatch(labels[-1]):
            return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise DecodeError(f"host {text[:64]!r} of a Web Push endpoint: not an IP address") from error
    if len(text) > MAX_HOST_CHARACTERS or not all(_LABEL.fullmatch(label) for label in labels):
        raise DecodeError(f"host {text[:64]!r} of a Web Push endpoint: not a domain name")
    return text


def _ipv6(text: str) -> str:
    address = ipaddress.IPv6Address(text)
    if address.ipv4_mapped is not None:
        raise ValueError("its text differs between versions of Python")
    return str(address)
