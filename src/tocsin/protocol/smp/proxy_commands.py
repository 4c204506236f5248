"""Commands between sender, proxy and relay (smp.md 6.7). The envelopes inside are in `proxying.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import CommandWithBody, MessageWithBody, Needs
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class RequestProxySession(CommandWithBody):
    """PRXY: connect to this relay for me."""

    tag: ClassVar[bytes] = b"PRXY"
    needs: ClassVar[Needs] = Needs.NOTHING

    relay: RouterLocation
    password: bytes | None = field(default=None, repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.relay.encode(out)
        out.maybe(self.password, out.short_bytes)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(RouterLocation.decode(body), body.maybe(body.short_bytes))


@dataclass(frozen=True, slots=True)
class ForwardToRelay(CommandWithBody):
    """PFWD: pass this encrypted transmission on. Entity: the session id given in PKEY."""

    tag: ClassVar[bytes] = b"PFWD"
    needs: ClassVar[Needs] = Needs.ENTITY

    version: int
    """The version in which the transmission inside is written."""
    client_key: X25519PublicKey
    transmission: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.u16(self.version).short_bytes(self.client_key.der).raw(self.transmission)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.u16(), dh_key_from_der(body.short_bytes()), body.rest())


@dataclass(frozen=True, slots=True)
class CarriesEnvelope(MessageWithBody):
    """Base of what proxy and relay send each other: nothing but an envelope."""

    envelope: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.envelope)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.rest())


@dataclass(frozen=True, slots=True)
class RelayForwarded(CarriesEnvelope, CommandWithBody):
    """RFWD: what the proxy sends to the relay."""

    tag: ClassVar[bytes] = b"RFWD"
    needs: ClassVar[Needs] = Needs.NOTHING
