"""Messages that direct notifications add to NTF. Existing messages get an optional end and are unchanged without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from tocsin.errors import DecodeError
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PACKET_BYTES
from tocsin.protocol.direct.smp_responses import TellsFate
from tocsin.protocol.messages import CommandWithBody, EntityRule, Needs
from tocsin.protocol.ntf.responses import TokenChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter

_KEY_FOLLOWS: Final = b"\0"
"""Between the status of a token, which is text, and a key."""


@dataclass(frozen=True, slots=True)
class ForwardPacket(CommandWithBody):
    """SFWD: an SMP router forwards a client's packet. Only the content of the packet authorizes it."""

    tag: ClassVar[bytes] = b"SFWD"
    needs: ClassVar[Needs] = Needs.NOTHING

    packet: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.packet)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.take(PACKET_BYTES))


@dataclass(frozen=True, slots=True)
class PacketHandled(TellsFate):
    """SFWR: the answer to SFWD."""

    tag: ClassVar[bytes] = b"SFWR"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY


@dataclass(frozen=True, slots=True)
class TokenRegisteredWithKey(TokenRegistered):
    """IDTKN, with the key to which packets are sealed: `… bs(keyId) key(x25519) i64(expires)`"""

    ntf_key: NtfKeyOffer | None = None

    def encode_body(self, out: WireWriter, version: int) -> None:
        TokenRegistered.encode_body(self, out, version)
        if self.ntf_key is not None:
            self.ntf_key.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        plain = TokenRegistered.decode_body(body, version)
        return cls(plain.token_id, plain.dh_key, NtfKeyOffer.decode(body) if body.remaining else None)


@dataclass(frozen=True, slots=True)
class TokenCheckedWithKey(TokenChecked):
    """TKN, with the key: a zero byte behind the status, then as in IDTKN."""

    ntf_key: NtfKeyOffer | None = None

    def encode_body(self, out: WireWriter, version: int) -> None:
        TokenChecked.encode_body(self, out, version)
        if self.ntf_key is not None:
            out.raw(_KEY_FOLLOWS)
            self.ntf_key.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        status = TokenStatus.parse(as_text(body.until(_KEY_FOLLOWS)))
        if not body.skip(_KEY_FOLLOWS):
            return cls(status)
        if not body.remaining:
            raise DecodeError("a key is expected behind a token's status")
        return cls(status, NtfKeyOffer.decode(body))
