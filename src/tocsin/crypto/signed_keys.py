"""A session key signed by a certificate's key (smp.md 1.8).

The structure is SEQUENCE { SEQUENCE { SubjectPublicKeyInfo }, SEQUENCE { OID }, BIT STRING }: the inner SEQUENCE
around the complete SubjectPublicKeyInfo is what the reference makes, and it is part of the signed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from tocsin.crypto.keys import (
    Ed448PublicKey,
    Ed25519PublicKey,
    PublicKey,
    SigningPrivateKey,
    SigningPublicKey,
    public_key_from_der,
)
from tocsin.errors import BadKey

_SEQUENCE: Final = 0x30
_BIT_STRING: Final = 0x03
_SHORTEST: Final = {1: 0x80, 2: 0x100}
"""The smallest length that needs this many length bytes."""
_ALGORITHMS: Final[dict[type[SigningPublicKey], bytes]] = {
    Ed25519PublicKey: bytes.fromhex("300506032b6570"),
    Ed448PublicKey: bytes.fromhex("300506032b6571"),
}


@dataclass(frozen=True, slots=True)
class SignedKey:
    """A public key and a signature over it."""

    signed_bytes: bytes
    """The wrapper around the key, which the signature covers."""
    key: PublicKey
    algorithm: bytes
    """DER AlgorithmIdentifier of the signer."""
    signature: bytes

    @classmethod
    def sign(cls, key: PublicKey, signer: SigningPrivateKey) -> Self:
        signed_bytes = _element(_SEQUENCE, key.der)
        return cls(signed_bytes, key, _ALGORITHMS[type(signer.public)], signer.sign(signed_bytes))

    @property
    def der(self) -> bytes:
        return _element(
            _SEQUENCE, self.signed_bytes + self.algorithm + _element(_BIT_STRING, b"\0" + self.signature)
        )

    @classmethod
    def from_der(cls, der: bytes) -> Self:
        """Raises `BadKey` for anything but the structure above around a key of a known kind."""
        _, body, end = _read_element(der, 0, _SEQUENCE)
        if end != len(der):
            raise BadKey("bytes left over after a signed key")
        wrapper, wrapped_key, at = _read_element(body, 0, _SEQUENCE)
        algorithm, _, at = _read_element(body, at, _SEQUENCE)
        _, bits, at = _read_element(body, at, _BIT_STRING)
        if at != len(body) or bits[:1] != b"\0":
            raise BadKey("a signed key whose signature is not a whole number of bytes")
        return cls(wrapper, public_key_from_der(wrapped_key), algorithm, bits[1:])

    def signed_by(self, signer: PublicKey) -> bool:
        if not isinstance(signer, Ed25519PublicKey | Ed448PublicKey):
            return False
        return self.algorithm == _ALGORITHMS[type(signer)] and signer.verifies(
            self.signature, self.signed_bytes
        )


def _element(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _read_element(data: bytes, at: int, tag: int) -> tuple[bytes, bytes, int]:
    """Return the element at `at`: all of it, its content, and the start of the next one."""
    if len(data) < at + 2 or data[at] != tag:
        raise BadKey(f"ASN.1 element {tag:#x} expected in a signed key")
    start = at + 2
    length = data[at + 1]
    if length >= 0x80:
        size = length - 0x80
        start += size
        length = int.from_bytes(data[at + 2 : start], "big")
        if size not in _SHORTEST or length < _SHORTEST[size]:
            raise BadKey("an ASN.1 length in a signed key that is too long or not in its shortest form")
    end = start + length
    if end > len(data):
        raise BadKey("a signed key that is cut off")
    return data[at:end], data[start:end], end
