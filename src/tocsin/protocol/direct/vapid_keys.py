"""The key by which Web Push services know an NTF router, and which its identity has signed.

    vapidKey  = point (65) bs(signature)
    signature = of the leaf certificate's key over "direct-notifications/1 vapid key" ntfIdentity (32) point (65)

An app passes the key to its distributor, which may bind the endpoint to it (RFC 8292, 4). With the certificates, which
the device has from TLS, anyone who knows the router's address can check it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, Self

from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.crypto.keys import Ed448PublicKey, Ed25519PublicKey, public_key_from_der
from tocsin.crypto.web_push import POINT_BYTES
from tocsin.errors import BadCertificateChain, BadKey
from tocsin.protocol.messages import Command, EntityRule, Needs, ResponseWithBody
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

_LABEL: Final = b"direct-notifications/1 vapid key"


@dataclass(frozen=True, slots=True)
class AskVapidKey(Command):
    """VKEY: asks for the router's key for Web Push."""

    tag: ClassVar[bytes] = b"VKEY"
    needs: ClassVar[Needs] = Needs.NOTHING


@dataclass(frozen=True, slots=True)
class SignedVapidKey(ResponseWithBody):
    """VAPID: the answer to VKEY."""

    tag: ClassVar[bytes] = b"VAPID"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    public: bytes
    """The uncompressed point."""
    signature: bytes = field(repr=False)

    @classmethod
    def signed(cls, public: bytes, *, ntf_identity: bytes, sign: Callable[[bytes], bytes]) -> Self:
        """`sign` signs with the leaf certificate's private key."""
        return cls(public, sign(_LABEL + ntf_identity + public))

    def is_signed_by(self, certificates: Sequence[bytes], ntf_identity: bytes, now: datetime) -> bool:
        """Return whether the chain leads to the router's identity, and its leaf signed this key."""
        try:
            leaf = public_key_from_der(validate_server_chain(certificates, ntf_identity, now))
        except (BadCertificateChain, BadKey):
            return False
        return isinstance(leaf, Ed25519PublicKey | Ed448PublicKey) and leaf.verifies(
            self.signature, _LABEL + ntf_identity + self.public
        )

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.public).short_bytes(self.signature)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.take(POINT_BYTES), body.short_bytes())
