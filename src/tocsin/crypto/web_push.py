"""Web Push: contents that only the device can read (RFC 8291, RFC 8188), and the sender's key (RFC 8292).

A body is one record of `aes128gcm`: salt, record size, the sender's one-time key, then the sealed content. Randomness
comes from the caller.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tocsin.crypto.signed_tokens import es256_key_from_pem, signed_token, unpadded_base64url
from tocsin.errors import BadBox, BadKey, LocalProtocolError

SCALAR_BYTES: Final = 32
POINT_BYTES: Final = 65
COMPRESSED_POINT_BYTES: Final = 33
AUTH_BYTES: Final = 16
SALT_BYTES: Final = 16
TAG_BYTES: Final = 16
SECRET_BYTES: Final = SCALAR_BYTES + AUTH_BYTES

MAX_BODY_BYTES: Final = 4096
"""The size that every push service accepts (RFC 8030, 7.2)."""
RECORD_BYTES: Final = 4096
HEADER_BYTES: Final = SALT_BYTES + 4 + 1 + POINT_BYTES
MAX_PADDED_BYTES: Final = MAX_BODY_BYTES - HEADER_BYTES - TAG_BYTES
"""Content, delimiter and padding."""
SMALLEST_RECORD_BYTES: Final = TAG_BYTES + 2
"""RFC 8188, 2.1."""

_KEY_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_LAST_RECORD: Final = b"\x02"
_UNCOMPRESSED: Final = b"\x04"
_CURVE: Final = ec.SECP256R1()
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True)
class WebPushReceiver:
    """The receiver of a body: P-256 key and authentication secret of a device (RFC 8291, 2)."""

    public_key: bytes = field(repr=False)
    """The uncompressed point."""
    auth: bytes = field(repr=False)
    _loaded: ec.EllipticCurvePublicKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises `BadKey`."""
        object.__setattr__(self, "_loaded", _uncompressed_key(self.public_key))
        if len(self.auth) != AUTH_BYTES:
            raise BadKey(f"a Web Push authentication secret of {len(self.auth)} bytes: 16 are expected")

    @classmethod
    def from_compressed(cls, point: bytes, auth: bytes) -> Self:
        """Raises `BadKey`."""
        if len(point) != COMPRESSED_POINT_BYTES:
            raise BadKey(f"a compressed P-256 point of {len(point)} bytes: 33 are expected")
        return cls(_point(_public_key(point)), auth)

    @property
    def compressed(self) -> bytes:
        """The point in 33 bytes (SEC 1, 2.3.3)."""
        return bytes((2 + (self.public_key[-1] & 1),)) + self.public_key[1:COMPRESSED_POINT_BYTES]


@dataclass(frozen=True, slots=True)
class WebPushSecret:
    """The device's secret, which opens bodies for its `receiver`."""

    raw: bytes = field(repr=False)
    """32 bytes of private key, 16 of authentication secret."""
    receiver: WebPushReceiver = field(init=False, repr=False, compare=False)
    _key: ec.EllipticCurvePrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises `BadKey`."""
        if len(self.raw) != SECRET_BYTES:
            raise BadKey(f"a Web Push secret of {len(self.raw)} bytes: {SECRET_BYTES} are expected")
        key = _private_key(self.raw[:SCALAR_BYTES])
        object.__setattr__(self, "_key", key)
        receiver = WebPushReceiver(_point(key.public_key()), self.raw[SCALAR_BYTES:])
        object.__setattr__(self, "receiver", receiver)

    def open(self, body: bytes) -> bytes:
        """Return the content without padding. Raises `BadBox` unless the body is one whole record for this device."""
        if not HEADER_BYTES + SMALLEST_RECORD_BYTES - 1 <= len(body) <= MAX_BODY_BYTES:
            raise BadBox(f"a Web Push body of {len(body)} bytes")
        salt, record = body[:SALT_BYTES], body[HEADER_BYTES:]
        record_bytes = int.from_bytes(body[SALT_BYTES : SALT_BYTES + 4], "big")
        if record_bytes < SMALLEST_RECORD_BYTES or len(record) > record_bytes:
            raise BadBox(f"a Web Push body that is not one record of at most {record_bytes} bytes")
        if body[SALT_BYTES + 4] != POINT_BYTES:
            raise BadBox("a Web Push body without a P-256 key of 65 bytes")
        sender = body[HEADER_BYTES - POINT_BYTES : HEADER_BYTES]
        try:
            agreed = self._key.exchange(ec.ECDH(), _uncompressed_key(sender))
        except BadKey as error:
            raise BadBox("a Web Push body whose key is no point of P-256") from error
        key, nonce = _content_key(agreed, self.receiver, sender, salt)
        try:
            padded = AESGCM(key).decrypt(nonce, record, None)
        except InvalidTag as error:
            raise BadBox("a Web Push body that this secret does not open") from error
        content = padded.rstrip(b"\0")
        if not content.endswith(_LAST_RECORD):
            raise BadBox("a Web Push body without its end")
        return content[:-1]


def seal_web_push(
    content: bytes, to: WebPushReceiver, ephemeral_key: bytes, salt: bytes, *, padded_to: int
) -> bytes:
    """Seal a body whose length depends only on `padded_to`: content, one byte and zeros.

    `ephemeral_key` is 32 random bytes and `salt` 16, only for this body. Raises `LocalProtocolError` if the content
    does not fit.
    """
    if not len(content) < padded_to <= MAX_PADDED_BYTES:
        raise LocalProtocolError(f"{len(content)} bytes do not fit a Web Push body padded to {padded_to}")
    if len(salt) != SALT_BYTES:
        raise LocalProtocolError(f"a Web Push salt of {len(salt)} bytes: 16 are needed")
    ephemeral = _private_key(ephemeral_key)
    sender = _point(ephemeral.public_key())
    key, nonce = _content_key(ephemeral.exchange(ec.ECDH(), to._loaded), to, sender, salt)
    sealed = AESGCM(key).encrypt(nonce, (content + _LAST_RECORD).ljust(padded_to, b"\0"), None)
    return salt + RECORD_BYTES.to_bytes(4, "big") + bytes((POINT_BYTES,)) + sender + sealed


@dataclass(frozen=True, slots=True)
class VapidKey:
    """The key by which push services recognise an application server (RFC 8292)."""

    _key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)
    public: bytes = field(init=False)
    """The uncompressed point: what a device restricts its subscription to."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", _point(self._key.public_key()))

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Raises `BadKey`."""
        return cls(es256_key_from_pem(pem, "VAPID"))

    @classmethod
    def from_scalar(cls, scalar: bytes) -> Self:
        """Make a key from 32 random bytes. Raises `BadKey`."""
        return cls(_private_key(scalar))

    @property
    def pem(self) -> bytes:
        """PKCS#8, unencrypted."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def authorization(self, audience: str, subject: str, expires_at: int) -> str:
        """Return the header's value for the push service with this origin, valid at most a day (RFC 8292, 2)."""
        claims = {"aud": audience, "exp": expires_at, "sub": subject}
        token = signed_token(self._key, {"typ": "JWT", "alg": "ES256"}, claims)
        # Without a space behind the comma, as the reference: not every receiver expects one.
        return f"vapid t={token.decode()},k={unpadded_base64url(self.public).decode()}"


def _content_key(agreed: bytes, receiver: WebPushReceiver, sender: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the only record (RFC 8291, 3.4)."""
    secret = _hmac(_hmac(receiver.auth, agreed), b"WebPush: info\0" + receiver.public_key + sender + b"\x01")
    shared = _hmac(salt, secret)
    key = _hmac(shared, b"Content-Encoding: aes128gcm\0\x01")[:_KEY_BYTES]
    return key, _hmac(shared, b"Content-Encoding: nonce\0\x01")[:_NONCE_BYTES]


def _private_key(scalar: bytes) -> ec.EllipticCurvePrivateKey:
    """Take random bytes above the order (one in 2^32) modulo the order, so that only zero is refused."""
    number = int.from_bytes(scalar, "big") % _ORDER
    if len(scalar) != SCALAR_BYTES or not number:
        raise BadKey("a P-256 private key must be 32 bytes, not all zero")
    return ec.derive_private_key(number, _CURVE)


def _uncompressed_key(point: bytes) -> ec.EllipticCurvePublicKey:
    if len(point) != POINT_BYTES or not point.startswith(_UNCOMPRESSED):
        raise BadKey("a Web Push key must be an uncompressed P-256 point of 65 bytes")
    return _public_key(point)


def _public_key(point: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point)
    except ValueError as error:
        raise BadKey("not a point of the curve P-256") from error


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
