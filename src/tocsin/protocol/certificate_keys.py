"""A certificate chain and a session key signed by its leaf, as hellos and PKEY carry them (smp.md 1.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import BadKey, DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class CertificateChainKey:
    """certChainKey = non-empty list(large(DER certificate)), leaf first, then large(signed key)"""

    certificates: tuple[bytes, ...]
    signed_key: SignedKey

    def encode(self, out: WireWriter) -> None:
        out.non_empty_list(self.certificates, out.large_bytes)
        out.large_bytes(self.signed_key.der)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(body.non_empty_list(body.large_bytes), decode_signed_key(body))


def decode_signed_key(body: WireReader) -> SignedKey:
    """`large(signed key)`. Raises `DecodeError`."""
    try:
        return SignedKey.from_der(body.large_bytes())
    except BadKey as error:
        raise DecodeError(str(error)) from error
