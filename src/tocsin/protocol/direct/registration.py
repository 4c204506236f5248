"""Registration: an NTF router proves its identity to an SMP router, and names its auth key.

    creds     = ntfServer nonEmptyList(large(certificate)) key(authKey) i64(issuedAt) bs(signature)
    signature = of the leaf certificate's key over
                "direct-notifications/1 auth key" smpIdentity (32) ntfServer key(authKey) i64(issuedAt)

The signature covers the SMP router, so that it is worthless at another one, and its time, so that a key that was
replaced cannot come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.crypto.keys import (
    Ed448PublicKey,
    Ed25519PublicKey,
    auth_key_from_der,
    public_key_from_der,
)
from tocsin.errors import BadCertificateChain, BadKey, DecodeError
from tocsin.protocol.addresses import RouterLocation
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

_LABEL: Final = b"direct-notifications/1 auth key"


@dataclass(frozen=True, slots=True)
class NtfRouterCredentials:
    """The content of NSRV."""

    location: RouterLocation
    """The NTF router's location. Its key hash is the fingerprint of the chain's identity certificate."""
    certificates: tuple[bytes, ...] = field(repr=False)
    auth_key: Ed25519PublicKey
    issued_at: int
    """Seconds since 1970; a credential that is not newer than the one an SMP router has does not replace it."""
    signature: bytes = field(repr=False)

    @classmethod
    def signed(
        cls,
        location: RouterLocation,
        certificates: tuple[bytes, ...],
        auth_key: Ed25519PublicKey,
        issued_at: int,
        *,
        smp_identity: bytes,
        sign: Callable[[bytes], bytes],
    ) -> Self:
        """`sign` signs with the leaf certificate's private key."""
        signature = sign(_signed_bytes(location, auth_key, issued_at, smp_identity))
        return cls(location, certificates, auth_key, issued_at, signature)

    def proves_identity(self, smp_identity: bytes, now: datetime) -> bool:
        """Return whether the chain leads to the location's identity, and its leaf signed all this for this router."""
        try:
            leaf = public_key_from_der(validate_server_chain(self.certificates, self.location.key_hash, now))
        except (BadCertificateChain, BadKey):
            return False
        if not isinstance(leaf, Ed25519PublicKey | Ed448PublicKey):
            return False
        return leaf.verifies(
            self.signature, _signed_bytes(self.location, self.auth_key, self.issued_at, smp_identity)
        )

    def encode(self, out: WireWriter) -> None:
        self.location.encode(out)
        out.non_empty_list(self.certificates, out.large_bytes)
        out.short_bytes(self.auth_key.der).i64(self.issued_at).short_bytes(self.signature)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        location = RouterLocation.decode(body)
        certificates = body.non_empty_list(body.large_bytes)
        auth_key = auth_key_from_der(body.short_bytes())
        if not isinstance(auth_key, Ed25519PublicKey):
            raise DecodeError("an NTF router's key is an Ed25519 key")
        return cls(location, certificates, auth_key, body.i64(), body.short_bytes())


def _signed_bytes(
    location: RouterLocation, auth_key: Ed25519PublicKey, issued_at: int, smp_identity: bytes
) -> bytes:
    out = WireWriter(_LABEL).raw(smp_identity)
    location.encode(out)
    return out.short_bytes(auth_key.der).i64(issued_at).done()
