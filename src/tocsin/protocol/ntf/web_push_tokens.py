"""Device tokens of the provider `webpush`: the endpoint, and the key for which pushes are encrypted.

There are two forms, which the byte after `WP` tells apart on the wire (ntf-webpush.md 2, 15):

compact   = %s"WP" large(token)           token = 66 base64url characters of (auth 16 bytes, compressed public key 33
                                          bytes), host [":" port] path ["?" query]; at most 300 bytes
reference = %s"WP" bs(host) bs(port) bs(path) bs(auth) bs(key)     port is empty for 443, the key has 65 bytes
            token = "https://" host [":" port] path SP b64(auth) SP b64(key)

The compact form is ours, and leaves more room for the endpoint. The other one is that of the reference's unreleased
branch. A device gets pushes of the form in which it registered. The scheme is https. Decoding makes
one canonical token of all texts for the same endpoint, so that routers recognise a device that registers again.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from tocsin.crypto.web_push import AUTH_BYTES, WebPushReceiver
from tocsin.errors import BadKey, DecodeError
from tocsin.wire.base64url import base64url_bytes, decode_base64url
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

MAX_WEB_PUSH_TOKEN_BYTES: Final = 300
"""The longest token that fits TNEW and TRPL in a block of NTF v2 and later, authorized with an Ed25519 key.

In v1 267 bytes fit, and with an X25519 key 284. Those of Mozilla, the longest in use, have 292.
"""
MAX_REFERENCE_ENDPOINT_BYTES: Final = 216
"""Host, port and path that fit TNEW in the reference's form, in NTF v2 and later with an Ed25519 key."""
KEYS_CHARACTERS: Final = 66
HTTPS_PORT: Final = 443
MAX_HOST_CHARACTERS: Final = 253

_SCHEME: Final = "https://"
_REFERENCE: Final = _SCHEME.encode()
_LARGE: Final = (0, 1)
"""The high byte of a compact token's length. No host of the other form has so few characters."""
_LONGEST_FIELD: Final = 255
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]*\]|[^\[\]:]*)(?::([0-9]*))?")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_KEYS: Final = re.compile(rf"[A-Za-z0-9_-]{{{KEYS_CHARACTERS}}}")
_PORT: Final = re.compile(r"[0-9]{1,5}")


class WebPushForm(Enum):
    """The form in which a device registered, which decides how its pushes look."""

    COMPACT = "compact"
    REFERENCE = "reference"


def is_reference_form(token: bytes) -> bool:
    """Whether a token is in the reference's form. Compact ones begin with base64url, which has no colon."""
    return token.startswith(_REFERENCE)


@dataclass(frozen=True, slots=True)
class WebPushAddress:
    """An endpoint of a push service and the keys of its device. `parse` and `from_url` make and check it."""

    receiver: WebPushReceiver
    host: str
    """Lower case; an IPv6 address without brackets."""
    port: int
    path: str = field(repr=False)
    """Including the query. Anyone who knows it can send pushes, so it is a secret."""
    form: WebPushForm = WebPushForm.COMPACT

    @property
    def origin(self) -> str:
        """The push service's origin, as VAPID names it (RFC 8292, 2)."""
        return _SCHEME + _authority(self.host, self.port)

    @property
    def url(self) -> str:
        return self.origin + self.path

    def token(self) -> bytes:
        if self.form is WebPushForm.REFERENCE:
            auth, key = (base64url_bytes(each) for each in (self.receiver.auth, self.receiver.public_key))
            return b"%b %b %b" % (self.url.encode("ascii"), auth, key)
        keys = base64url_bytes(self.receiver.auth + self.receiver.compressed)[:KEYS_CHARACTERS]
        return keys + (_authority(self.host, self.port) + self.path).encode("ascii")

    @classmethod
    def parse(cls, token: bytes) -> Self:
        """Parse a token. Raises `DecodeError`, which names the fault.

        Tokens of the reference's form may come from its database or from people, so other spellings are read too.
        """
        if is_reference_form(token):
            return cls._parse_reference(token)
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
    def _parse_reference(cls, token: bytes) -> Self:
        words = token.decode("latin-1").split(" ")
        if len(words) != 3:
            raise DecodeError("a Web Push token that is not an https address and two keys in base64url")
        url, auth, key = words
        location = _reference_location(*_location(url.removeprefix(_SCHEME)))
        receiver = _reference_receiver(decode_base64url(auth), decode_base64url(key))
        return cls(receiver, *location, WebPushForm.REFERENCE)

    @classmethod
    def from_url(
        cls, url: str, receiver: WebPushReceiver, form: WebPushForm | None = WebPushForm.COMPACT
    ) -> Self:
        """Make an address from a distributor's URL. Raises `DecodeError`, which names the fault.

        Without a form, it is the reference's if the endpoint fits it.
        """
        if form is not WebPushForm.COMPACT:
            try:
                location = _reference_location(*_location_of_url(url))
                _require_reference_fits(*location)
            except DecodeError:
                if form is not None:
                    raise
            else:
                return cls(receiver, *location, WebPushForm.REFERENCE)
        return cls(receiver, *endpoint_location(url))

    def encode_fields(self, out: WireWriter) -> None:
        """Write the reference's form, without the provider. It is one of this form."""
        port = b"" if self.port == HTTPS_PORT else str(self.port).encode()
        for each in (
            self.host.encode(),
            port,
            self.path.encode(),
            self.receiver.auth,
            self.receiver.public_key,
        ):
            out.short_bytes(each)

    @classmethod
    def decode_fields(cls, body: WireReader) -> Self:
        """Read the reference's form. Raises `DecodeError` for what is not a proper endpoint or key."""
        host, port, path, auth, key = (body.short_bytes().decode("latin-1") for _ in range(5))
        if not host or any(each in host for each in "[:/?#@"):
            raise DecodeError("the host of a Web Push endpoint: a name or an IPv4 address is expected")
        if path[:1] not in ("", "/", "?"):
            raise DecodeError("the path of a Web Push endpoint: / is expected first")
        name, _, path = _location(host + path)
        location = _reference_location(name, _port(port) if port else HTTPS_PORT, path)
        receiver = _reference_receiver(auth.encode("latin-1"), key.encode("latin-1"))
        return cls(receiver, *location, WebPushForm.REFERENCE)


def is_large_next(body: WireReader) -> bool:
    """Whether a compact token follows, and not the fields of the reference's form. Reads nothing."""
    position = body.position
    first = body.u8()
    body.rewind(position)
    return first in _LARGE


def push_service(token: bytes) -> str:
    """Return the host of a token's endpoint, and its port if it is not 443. Raises `DecodeError`.

    It does not load the key, which costs much more.
    """
    text = token.decode("latin-1")
    if is_reference_form(token):
        return _service(text.partition(" ")[0].removeprefix(_SCHEME))
    return _service(text[KEYS_CHARACTERS:])


def parse_push_service(text: str) -> str:
    """Parse `host` or `host:port` to what `push_service` returns. Raises `DecodeError`."""
    if any(each in text for each in "/?#"):
        raise DecodeError(
            f"{text[:64]!r}: the host of a push service is expected, with its port if it is not 443"
        )
    return _service(text)


def _service(text: str) -> str:
    host, port, _ = _location(text)
    return _authority(host, port)


def endpoint_location(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an endpoint. Raises `DecodeError`, which names the fault."""
    host, port, path = _location_of_url(url)
    _require_length(KEYS_CHARACTERS + len(_authority(host, port) + path))
    return host, port, path


def _location_of_url(url: str) -> tuple[str, int, str]:
    if url[: len(_SCHEME)].lower() != _SCHEME:
        raise DecodeError("a Web Push endpoint must be an https address")
    return _location(url[len(_SCHEME) :])


def _reference_location(host: str, port: int, path: str) -> tuple[str, int, str]:
    """Refuse what the reference's form cannot carry."""
    if ":" in host:
        raise DecodeError(
            "an IPv6 address as the host of a Web Push endpoint does not fit the reference's form"
        )
    if len(host) in _LARGE:
        raise DecodeError("a host of one character does not fit the reference's form of a Web Push endpoint")
    if len(path) > _LONGEST_FIELD:
        raise DecodeError(f"a Web Push endpoint whose path has {len(path)} bytes: {_LONGEST_FIELD} fit")
    return host, port, path


def _require_reference_fits(host: str, port: int, path: str) -> None:
    count = len(host) + (0 if port == HTTPS_PORT else len(str(port))) + len(path)
    if count > MAX_REFERENCE_ENDPOINT_BYTES:
        raise DecodeError(
            f"a Web Push endpoint of {count} bytes: {MAX_REFERENCE_ENDPOINT_BYTES} fit a block in the reference's form"
        )


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


def _reference_receiver(auth: bytes, key: bytes) -> WebPushReceiver:
    try:
        return WebPushReceiver(key, auth)
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
