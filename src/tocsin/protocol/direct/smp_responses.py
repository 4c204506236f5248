"""Responses that direct notifications add to SMP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.smp_commands import CountsDirectQueues
from tocsin.protocol.messages import EntityRule, ResponseWithBody
from tocsin.protocol.smp.notifier_commands import CountsNotifications
from tocsin.protocol.smp.queue_modes import decode_letter
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class NtfRouterRegistered(ResponseWithBody):
    """NSID: the answer to NSRV; the same id as long as the NTF router's identity is the same."""

    tag: ClassVar[bytes] = b"NSID"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    ntf_router_id: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.ntf_router_id)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_id())


@dataclass(frozen=True, slots=True)
class NtfRouterSubscribed(CountsDirectQueues, ResponseWithBody):
    """NSOKS: the answer to NSSUB; how many queues the NTF router has, and the hash of their notifier ids."""

    tag: ClassVar[bytes] = b"NSOKS"


@dataclass(frozen=True, slots=True)
class NotificationsAcknowledged(CountsNotifications, ResponseWithBody):
    """NRCV: the answer to the command; the router does not keep these notifications any longer."""

    entity: ClassVar[EntityRule] = EntityRule.EMPTY


@dataclass(frozen=True, slots=True)
class QueueAssociated(ResponseWithBody):
    """NSOK: the answer to NSKEY: the router's key for the metadata, and the present fate of the packet."""

    tag: ClassVar[bytes] = b"NSOK"

    dh_key: X25519PublicKey
    fate: PacketFate

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.dh_key.der).raw(self.fate.value)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(dh_key_from_der(body.short_bytes()), decode_letter(PacketFate, body))


@dataclass(frozen=True, slots=True)
class TellsFate(ResponseWithBody):
    """Base of NPST and SFWR: one letter."""

    fate: PacketFate

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.fate.value)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(decode_letter(PacketFate, body))


@dataclass(frozen=True, slots=True)
class PacketStatus(TellsFate):
    """NPST: the answer to NPKT."""

    tag: ClassVar[bytes] = b"NPST"
