"""Responses and events of an SMP router (smp.md 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tocsin.crypto.boxes import NONCE_BYTES
from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.messages import EntityRule, Response, ResponseWithBody
from tocsin.protocol.smp.proxy_commands import CarriesEnvelope
from tocsin.protocol.smp.queue_modes import LinkData, NotifierIds, QueueMode, decode_letter
from tocsin.protocol.smp.service_subscriptions import CountsQueues
from tocsin.protocol.smp.versions import (
    DELETED_EVENT_VERSION,
    NEW_NOTIFIER_CREDS_VERSION,
    SENDER_AUTH_KEY_VERSION,
    SERVICE_CERTS_VERSION,
    SHORT_LINKS_VERSION,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class QueueCreated(ResponseWithBody):
    """IDS: the answer to NEW.

    v17+   "IDS " bs(rcvId) bs(sndId) key(serverDh) maybe(mode) maybe(bs(linkId)) maybe(bs(serviceId)) maybe(notifier)
    v16    … without the notifier; v15 … without the service id
    v9..14 "IDS " bs bs key bool(sender can secure); v6..8 without it
    """

    tag: ClassVar[bytes] = b"IDS"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    recipient_id: bytes
    sender_id: bytes
    dh_key: X25519PublicKey
    mode: QueueMode | None = None
    link_id: bytes | None = None
    service_id: bytes | None = None
    notifier: NotifierIds | None = None

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.recipient_id).short_bytes(self.sender_id).short_bytes(self.dh_key.der)
        if version >= SHORT_LINKS_VERSION:
            out.maybe(self.mode, lambda mode: out.raw(mode.value))
            out.maybe(self.link_id, out.short_bytes)
        elif version >= SENDER_AUTH_KEY_VERSION:
            out.boolean(self.mode is QueueMode.MESSAGING)
        if version >= SERVICE_CERTS_VERSION:
            out.maybe(self.service_id, out.short_bytes)
        if version >= NEW_NOTIFIER_CREDS_VERSION:
            out.maybe(self.notifier, lambda notifier: notifier.encode(out))

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        recipient_id, sender_id = body.short_id(), body.short_id()
        dh_key = dh_key_from_der(body.short_bytes())
        mode = link_id = service_id = notifier = None
        if version >= SHORT_LINKS_VERSION:
            mode = body.maybe(lambda: decode_letter(QueueMode, body))
            link_id = body.maybe(body.short_id)
        elif version >= SENDER_AUTH_KEY_VERSION:
            mode = QueueMode.MESSAGING if body.boolean() else QueueMode.CONTACT
        if version >= SERVICE_CERTS_VERSION:
            service_id = body.maybe(body.short_id)
        if version >= NEW_NOTIFIER_CREDS_VERSION:
            notifier = body.maybe(lambda: NotifierIds.decode(body))
        return cls(recipient_id, sender_id, dh_key, mode, link_id, service_id, notifier)


@dataclass(frozen=True, slots=True)
class LinkContent(ResponseWithBody):
    """LNK: the answer to LGET and LKEY."""

    tag: ClassVar[bytes] = b"LNK"

    sender_id: bytes
    data: LinkData

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.sender_id)
        self.data.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes(), LinkData.decode(body))


@dataclass(frozen=True, slots=True)
class Subscribed(ResponseWithBody):
    """SOK: subscribed, as a service if an id is given. Before v16 the same answer is `OK`."""

    tag: ClassVar[bytes] = b"SOK"

    service_id: bytes | None = None

    def encode(self, version: int) -> bytes:
        return ResponseWithBody.encode(self, version) if version >= SERVICE_CERTS_VERSION else b"OK"

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.maybe(self.service_id, out.short_bytes)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.maybe(body.short_id))


@dataclass(frozen=True, slots=True)
class ServiceSubscribed(CountsQueues):
    """SOKS: how many queues the service is subscribed to."""

    tag: ClassVar[bytes] = b"SOKS"


@dataclass(frozen=True, slots=True)
class MessageReceived(ResponseWithBody):
    """MSG: a message, encrypted for the recipient (opened in `delivered_messages.py`)."""

    tag: ClassVar[bytes] = b"MSG"

    message_id: bytes
    sealed: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.message_id).raw(self.sealed)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes(), body.rest())


@dataclass(frozen=True, slots=True)
class NotificationsEnabled(ResponseWithBody):
    """NID: the answer to NKEY."""

    tag: ClassVar[bytes] = b"NID"

    notifier: NotifierIds

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.notifier.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(NotifierIds.decode(body))


@dataclass(frozen=True, slots=True)
class NotificationReceived(ResponseWithBody):
    """NMSG: a queue has a message; which one only the recipient can read. The nonce has no length byte."""

    tag: ClassVar[bytes] = b"NMSG"

    nonce: bytes
    sealed_meta: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.nonce).short_bytes(self.sealed_meta)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.take(NONCE_BYTES), body.short_bytes())


@dataclass(frozen=True, slots=True)
class ProxySession(ResponseWithBody):
    """PKEY: the proxy's session with the relay, and the relay's signed key."""

    tag: ClassVar[bytes] = b"PKEY"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY

    session_id: bytes
    versions: VersionRange
    relay_key: CertificateChainKey

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.session_id)
        self.versions.encode(out)
        self.relay_key.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes(), VersionRange.decode(body), CertificateChainKey.decode(body))


@dataclass(frozen=True, slots=True)
class RelayAnswer(CarriesEnvelope, ResponseWithBody):
    """RRES: the relay's answer to RFWD."""

    tag: ClassVar[bytes] = b"RRES"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY


@dataclass(frozen=True, slots=True)
class ForwardedAnswer(ResponseWithBody):
    """PRES: the relay's answer as the proxy passes it on."""

    tag: ClassVar[bytes] = b"PRES"

    transmission: bytes = field(repr=False)

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.transmission)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.rest())


@dataclass(frozen=True, slots=True)
class SubscriptionEnded(Response):
    """END: another connection took the subscription over."""

    tag: ClassVar[bytes] = b"END"


@dataclass(frozen=True, slots=True)
class ServiceSubscriptionEnded(CountsQueues):
    """ENDS: another connection of the service took all its subscriptions over."""

    tag: ClassVar[bytes] = b"ENDS"


@dataclass(frozen=True, slots=True)
class AllDelivered(Response):
    """ALLS: every message that waited when SUBS came was sent."""

    tag: ClassVar[bytes] = b"ALLS"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY


@dataclass(frozen=True, slots=True)
class QueueDeleted(Response):
    """DELD: the queue or its notifier is gone. Before v10 the same event is `END`."""

    tag: ClassVar[bytes] = b"DELD"

    def encode(self, version: int) -> bytes:
        return self.tag if version >= DELETED_EVENT_VERSION else SubscriptionEnded.tag


@dataclass(frozen=True, slots=True)
class QueueInspected(ResponseWithBody):
    """INFO: JSON, see `queue_information.py`."""

    tag: ClassVar[bytes] = b"INFO"

    json: bytes

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.raw(self.json)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.rest())
