"""Commands of the NTF router (smp.md 6.3, 8.5, 8.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from tocsin.protocol.messages import Command, CommandWithBody, MessageWithBody, Needs, ServiceSigning
from tocsin.protocol.smp.service_subscriptions import SubscribesService
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class SubscribeNotifications(Command):
    """NSUB: receive the notifications of one queue on this connection."""

    tag: ClassVar[bytes] = b"NSUB"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.BESIDE


@dataclass(frozen=True, slots=True)
class SubscribeServiceNotifications(SubscribesService):
    """NSUBS: receive the notifications of all queues associated with this service."""

    tag: ClassVar[bytes] = b"NSUBS"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.ALONE


@dataclass(frozen=True, slots=True)
class CountsNotifications(MessageWithBody):
    """Base of NRCV in both directions: `i64(count)` notifications of this connection, from the first one on."""

    tag: ClassVar[bytes] = b"NRCV"

    count: int

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.i64(self.count)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.i64())


@dataclass(frozen=True, slots=True)
class AcknowledgeNotifications(CountsNotifications, CommandWithBody):
    """NRCV, in direct sessions: the client has stored them."""

    needs: ClassVar[Needs] = Needs.NOTHING
