"""Commands that direct notifications add to SMP. Existing commands get an optional end and are unchanged without it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PACKET_BYTES
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import QUEUE_ID_BYTES
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.messages import CommandWithBody, MessageWithBody, Needs
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import CreateQueue, DeleteQueue, DisableNotifications
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, UNKNOWN_COUNT, decode_ids_hash
from tocsin.protocol.smp.versions import NEW_NOTIFIER_CREDS_VERSION
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

_ALWAYS: Final = sys.maxsize
"""For `bare_before`: the body may be absent in every version."""


def decode_packet(body: WireReader) -> bytes:
    return body.take(PACKET_BYTES)


@dataclass(frozen=True, slots=True)
class NtfSubscription:
    """A recipient's instruction to send the notifications of a queue to its NTF router.

    ntfSubscription = key(dhKey) ntfServer notifierId (24) minimumPriority packet (448)
    """

    dh_key: X25519PublicKey
    """The recipient's key for notification metadata."""
    ntf_router: RouterLocation
    notifier_id: bytes = field(repr=False)
    """The notifier id that is derived from the correlation id."""
    minimum: MinimumPriority
    packet: bytes = field(repr=False)

    def encode(self, out: WireWriter) -> None:
        out.short_bytes(self.dh_key.der)
        self.ntf_router.encode(out)
        out.raw(self.notifier_id)
        self.minimum.encode(out)
        out.raw(self.packet)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(
            dh_key_from_der(body.short_bytes()),
            RouterLocation.decode(body),
            body.take(QUEUE_ID_BYTES),
            MinimumPriority.decode(body),
            decode_packet(body),
        )


@dataclass(frozen=True, slots=True)
class RegisterNtfRouter(CommandWithBody):
    """NSRV: an NTF router proves its identity and names the key of its commands, which authorizes this one too."""

    tag: ClassVar[bytes] = b"NSRV"
    needs: ClassVar[Needs] = Needs.AUTH

    credentials: NtfRouterCredentials

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.credentials.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(NtfRouterCredentials.decode(body))


@dataclass(frozen=True, slots=True)
class CountsDirectQueues(MessageWithBody):
    """Base of NSSUB and NSOKS: `i64(count) bs(hash)` of the queues that an NTF router has."""

    count: int = UNKNOWN_COUNT
    ids_hash: bytes = NO_IDS_HASH

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.i64(self.count).short_bytes(self.ids_hash)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.i64(), decode_ids_hash(body))


@dataclass(frozen=True, slots=True)
class SubscribeNtfRouter(CountsDirectQueues, CommandWithBody):
    """NSSUB: receive the notifications of all queues of this NTF router, which expects this count and hash."""

    tag: ClassVar[bytes] = b"NSSUB"


@dataclass(frozen=True, slots=True)
class AssociateQueue(CommandWithBody):
    """NSKEY: a new notifier id of the queue, and the packet that associates it at the NTF router.

    "NSKEY " ntfSubscription maybe(packet)
    """

    tag: ClassVar[bytes] = b"NSKEY"

    subscription: NtfSubscription
    replaced: bytes | None = field(default=None, repr=False)
    """The packet that ends the association of the notifier id before this one."""

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.subscription.encode(out)
        out.maybe(self.replaced, out.raw)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(NtfSubscription.decode(body), body.maybe(lambda: decode_packet(body)))


@dataclass(frozen=True, slots=True)
class SendPacketAgain(CommandWithBody):
    """NPKT: another packet for the queue's present notifier id, or a question about the fate of the last one."""

    tag: ClassVar[bytes] = b"NPKT"

    packet: bytes | None = field(default=None, repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.maybe(self.packet, out.raw)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.maybe(lambda: decode_packet(body)))


@dataclass(frozen=True, slots=True)
class SetMinimumPriority(CommandWithBody):
    """NPRI: set the minimum priority from which messages of the queue notify."""

    tag: ClassVar[bytes] = b"NPRI"

    minimum: MinimumPriority

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.minimum.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(MinimumPriority.decode(body))


@dataclass(frozen=True, slots=True)
class CreateNotifyingQueue(CreateQueue):
    """NEW, with `ntfSubscription` at its end, from the version in which IDS can answer it."""

    direct: NtfSubscription | None = None

    def encode_body(self, out: WireWriter, version: int) -> None:
        CreateQueue.encode_body(self, out, version)
        if self.direct is not None:
            if version < NEW_NOTIFIER_CREDS_VERSION:
                raise LocalProtocolError(f"NEW has no notifier in v{version}")
            self.direct.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        plain = CreateQueue.decode_body(body, version)
        has_notifier = body.remaining and version >= NEW_NOTIFIER_CREDS_VERSION
        direct = NtfSubscription.decode(body) if has_notifier else None
        if direct is not None and plain.notifier is not None:
            raise DecodeError("NEW with two ways to notify")
        return cls(
            plain.auth_key,
            plain.dh_key,
            plain.password,
            plain.subscription,
            plain.request,
            plain.notifier,
            direct,
        )


@dataclass(frozen=True, slots=True)
class SubscribeNotificationsAs(CommandWithBody, SubscribeNotifications):
    """NSUB, with the id of the NTF router whose connection this is: the queue is associated with it."""

    tag: ClassVar[bytes] = b"NSUB"
    bare_before: ClassVar[int] = _ALWAYS

    ntf_router_id: bytes | None = field(default=None, repr=False)

    def encode(self, version: int) -> bytes:
        return self.tag if self.ntf_router_id is None else CommandWithBody.encode(self, version)

    def encode_body(self, out: WireWriter, version: int) -> None:
        assert self.ntf_router_id is not None
        out.short_bytes(self.ntf_router_id)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes())


@dataclass(frozen=True, slots=True)
class _WithPacket(CommandWithBody):
    """Base of NDEL and DEL: a packet that proves to the NTF router that the client wanted the deletion."""

    bare_before: ClassVar[int] = _ALWAYS

    packet: bytes | None = field(default=None, repr=False)

    def encode(self, version: int) -> bytes:
        return self.tag if self.packet is None else CommandWithBody.encode(self, version)

    def encode_body(self, out: WireWriter, version: int) -> None:
        assert self.packet is not None
        out.raw(self.packet)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(decode_packet(body))


@dataclass(frozen=True, slots=True)
class DisableNotificationsProven(_WithPacket, DisableNotifications):
    """NDEL, with the proof."""

    tag: ClassVar[bytes] = b"NDEL"


@dataclass(frozen=True, slots=True)
class DeleteQueueProven(_WithPacket, DeleteQueue):
    """DEL, with the proof."""

    tag: ClassVar[bytes] = b"DEL"
