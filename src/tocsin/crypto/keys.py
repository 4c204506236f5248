"""Public and private keys of the four algorithms, their DER forms, signatures and key agreement (smp.md 1.5).

Keys travel as DER (SubjectPublicKeyInfo, PKCS#8). Both have a fixed prefix per algorithm, so no ASN.1 is parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

import nacl.bindings as sodium
import nacl.exceptions
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed448

from tocsin.errors import BadKey

ED25519_SIGNATURE_BYTES: Final = 64
ED448_SIGNATURE_BYTES: Final = 114

_P: Final = 2**255 - 19
# The points of order 1, 2, 4 and 8 on Curve25519, and their non-canonical forms: everyone knows a secret
# made with one of them (cr.yp.to/ecdh.html, "validate").
_LOW_ORDER_POINTS: Final = frozenset(
    point.to_bytes(32, "little")
    for point in (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _P - 1,
        _P,
        _P + 1,
    )
)
_P448: Final = 2**448 - 2**224 - 1
# The y coordinates of the four points of low order on Ed448: with such a key a signature of zeros verifies for
# any message. libsodium refuses those of Ed25519 itself, OpenSSL does not refuse these.
_ED448_LOW_ORDER: Final = frozenset(y.to_bytes(56, "little") for y in (0, 1, _P448 - 1))


@dataclass(frozen=True, slots=True)
class X25519PublicKey:
    """A key for Diffie-Hellman, also used to authorize commands."""

    der_prefix: ClassVar[bytes] = bytes.fromhex("302a300506032b656e032100")
    raw_bytes: ClassVar[int] = 32
    raw: bytes

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw


@dataclass(frozen=True, slots=True)
class X448PublicKey:
    """Known so that errors can name it. No command accepts it."""

    der_prefix: ClassVar[bytes] = bytes.fromhex("3042300506032b656f033900")
    raw_bytes: ClassVar[int] = 56
    raw: bytes

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw


@dataclass(frozen=True, slots=True)
class Ed25519PublicKey:
    der_prefix: ClassVar[bytes] = bytes.fromhex("302a300506032b6570032100")
    raw_bytes: ClassVar[int] = 32
    raw: bytes

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw

    def verifies(self, signature: bytes, message: bytes) -> bool:
        if len(signature) != ED25519_SIGNATURE_BYTES:
            return False
        try:
            sodium.crypto_sign_open(signature + message, self.raw)
        except nacl.exceptions.BadSignatureError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Ed448PublicKey:
    der_prefix: ClassVar[bytes] = bytes.fromhex("3043300506032b6571033a00")
    raw_bytes: ClassVar[int] = 57
    raw: bytes

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw

    def verifies(self, signature: bytes, message: bytes) -> bool:
        if len(signature) != ED448_SIGNATURE_BYTES or self.raw[:56] in _ED448_LOW_ORDER:
            return False
        try:
            ed448.Ed448PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


SigningPublicKey: TypeAlias = Ed25519PublicKey | Ed448PublicKey
AuthPublicKey: TypeAlias = Ed25519PublicKey | Ed448PublicKey | X25519PublicKey
PublicKey: TypeAlias = AuthPublicKey | X448PublicKey


@dataclass(frozen=True, slots=True)
class X25519PrivateKey:
    der_prefix: ClassVar[bytes] = bytes.fromhex("302e020100300506032b656e04220420")
    raw_bytes: ClassVar[int] = 32
    raw: bytes = field(repr=False)
    public: X25519PublicKey = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", X25519PublicKey(sodium.crypto_scalarmult_base(self.raw)))

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw

    def agree(self, peer: X25519PublicKey) -> bytes:
        """The raw 32-byte secret shared with `peer`. Raises `BadKey` for a low-order point."""
        try:
            return sodium.crypto_scalarmult(self.raw, peer.raw)
        except (RuntimeError, nacl.exceptions.CryptoError) as error:
            raise BadKey("an X25519 key of low order: the secret would be known to everybody") from error


@dataclass(frozen=True, slots=True)
class Ed25519PrivateKey:
    der_prefix: ClassVar[bytes] = bytes.fromhex("302e020100300506032b657004220420")
    raw_bytes: ClassVar[int] = 32
    raw: bytes = field(repr=False)
    public: Ed25519PublicKey = field(init=False, compare=False)
    _expanded: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        public, expanded = sodium.crypto_sign_seed_keypair(self.raw)
        object.__setattr__(self, "public", Ed25519PublicKey(public))
        object.__setattr__(self, "_expanded", expanded)

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw

    def sign(self, message: bytes) -> bytes:
        return sodium.crypto_sign(message, self._expanded)[:ED25519_SIGNATURE_BYTES]


@dataclass(frozen=True, slots=True)
class Ed448PrivateKey:
    der_prefix: ClassVar[bytes] = bytes.fromhex("3047020100300506032b6571043b0439")
    raw_bytes: ClassVar[int] = 57
    raw: bytes = field(repr=False)
    public: Ed448PublicKey = field(init=False, compare=False)
    _loaded: ed448.Ed448PrivateKey = field(init=False, repr=False, compare=False)
    """OpenSSL's form. Loading costs as much as signing, because it computes the public key."""

    def __post_init__(self) -> None:
        loaded = ed448.Ed448PrivateKey.from_private_bytes(self.raw)
        object.__setattr__(self, "_loaded", loaded)
        object.__setattr__(self, "public", Ed448PublicKey(loaded.public_key().public_bytes_raw()))

    @property
    def der(self) -> bytes:
        return self.der_prefix + self.raw

    def sign(self, message: bytes) -> bytes:
        return self._loaded.sign(message)


SigningPrivateKey: TypeAlias = Ed25519PrivateKey | Ed448PrivateKey
AuthPrivateKey: TypeAlias = Ed25519PrivateKey | Ed448PrivateKey | X25519PrivateKey

_PUBLIC: Final = {
    kind.der_prefix: kind for kind in (Ed25519PublicKey, X25519PublicKey, Ed448PublicKey, X448PublicKey)
}
_PRIVATE: Final = {kind.der_prefix: kind for kind in (Ed25519PrivateKey, X25519PrivateKey, Ed448PrivateKey)}
_PUBLIC_PREFIX_BYTES: Final = 12
_PRIVATE_PREFIX_BYTES: Final = 16


def public_key_from_der(der: bytes) -> PublicKey:
    """Decode a public key. Raises `BadKey` for other kinds of keys, and for X25519 points of low order."""
    kind = _PUBLIC.get(der[:_PUBLIC_PREFIX_BYTES])
    raw = der[_PUBLIC_PREFIX_BYTES:]
    if kind is None or len(raw) != kind.raw_bytes:
        raise BadKey("not the SubjectPublicKeyInfo of an X25519, X448, Ed25519 or Ed448 key")
    if kind is X25519PublicKey and is_low_order(raw):
        raise BadKey("an X25519 key of low order: the secret would be known to everybody")
    return kind(raw)


def auth_key_from_der(der: bytes) -> AuthPublicKey:
    """A key that can authorize commands: Ed25519, Ed448 or X25519."""
    key = public_key_from_der(der)
    if isinstance(key, X448PublicKey):
        raise BadKey("an X448 key cannot authorize commands")
    return key


def dh_key_from_der(der: bytes) -> X25519PublicKey:
    key = public_key_from_der(der)
    if not isinstance(key, X25519PublicKey):
        raise BadKey("an X25519 key is needed here")
    return key


def private_key_from_der(der: bytes) -> AuthPrivateKey:
    """An unencrypted PKCS#8 key without attributes, as the reference writes it."""
    kind = _PRIVATE.get(der[:_PRIVATE_PREFIX_BYTES])
    raw = der[_PRIVATE_PREFIX_BYTES:]
    if kind is None or len(raw) != kind.raw_bytes:
        raise BadKey("not the PKCS#8 form of an X25519, Ed25519 or Ed448 key")
    return kind(raw)


def is_low_order(raw: bytes) -> bool:
    """Whether a raw X25519 key gives a secret that does not depend on the other side's key."""
    return raw[:31] + bytes((raw[31] & 0x7F,)) in _LOW_ORDER_POINTS
