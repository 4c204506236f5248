"""Commands of the party that receives messages from a queue (smp.md 6.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tocsin.crypto.keys import AuthPublicKey, X25519PublicKey, auth_key_from_der, dh_key_from_der
from tocsin.protocol.messages import Command, CommandWithBody, Needs, ServiceSigning
from tocsin.protocol.smp.queue_modes import (
    LinkData,
    NotifierKeys,
    QueueMode,
    QueueRequest,
    SubscriptionMode,
    decode_letter,
)
from tocsin.protocol.smp.sender_commands import SetsSenderKey
from tocsin.protocol.smp.service_subscriptions import SubscribesService
from tocsin.protocol.smp.versions import (
    NEW_NOTIFIER_CREDS_VERSION,
    SENDER_AUTH_KEY_VERSION,
    SHORT_LINKS_VERSION,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class CreateQueue(CommandWithBody):
    """NEW: create a queue, and subscribe to it unless its mode says otherwise.

    v17+    "NEW " key(rcvAuth) key(rcvDh) maybe(bs(password)) subMode maybe(queueReq) maybe(key(ntfAuth) key(ntfDh))
    v15, 16 … without the notifier keys
    v9..14  "NEW " key key maybe(bs(password)) subMode bool(sender can secure)
    v6..8   "NEW " key key ["A" bs(password)] subMode
    """

    tag: ClassVar[bytes] = b"NEW"
    needs: ClassVar[Needs] = Needs.AUTH
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.BESIDE

    auth_key: AuthPublicKey
    dh_key: X25519PublicKey
    password: bytes | None = field(default=None, repr=False)
    subscription: SubscriptionMode = SubscriptionMode.SUBSCRIBE
    request: QueueRequest | None = None
    """v9..14 say the mode only; v6..8 nothing."""
    notifier: NotifierKeys | None = None

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.auth_key.der).short_bytes(self.dh_key.der)
        if version >= SENDER_AUTH_KEY_VERSION:
            out.maybe(self.password, out.short_bytes)
        elif self.password is not None:
            out.raw(b"A").short_bytes(self.password)
        out.raw(self.subscription.value)
        if version >= SHORT_LINKS_VERSION:
            out.maybe(self.request, lambda request: request.encode(out))
        elif version >= SENDER_AUTH_KEY_VERSION:
            out.boolean(self.request is not None and self.request.mode is QueueMode.MESSAGING)
        if version >= NEW_NOTIFIER_CREDS_VERSION:
            out.maybe(self.notifier, lambda notifier: notifier.encode(out))

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        auth_key = auth_key_from_der(body.short_bytes())
        dh_key = dh_key_from_der(body.short_bytes())
        if version >= SENDER_AUTH_KEY_VERSION:
            password = body.maybe(body.short_bytes)
        else:
            password = body.short_bytes() if body.skip(b"A") else None
        subscription = decode_letter(SubscriptionMode, body)
        request = notifier = None
        if version >= SHORT_LINKS_VERSION:
            request = body.maybe(lambda: QueueRequest.decode(body))
        elif version >= SENDER_AUTH_KEY_VERSION:
            request = QueueRequest(QueueMode.MESSAGING if body.boolean() else QueueMode.CONTACT)
        if version >= NEW_NOTIFIER_CREDS_VERSION:
            notifier = body.maybe(lambda: NotifierKeys.decode(body))
        return cls(auth_key, dh_key, password, subscription, request, notifier)


@dataclass(frozen=True, slots=True)
class Subscribe(Command):
    """SUB: receive the queue's messages on this connection."""

    tag: ClassVar[bytes] = b"SUB"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.BESIDE


@dataclass(frozen=True, slots=True)
class SubscribeService(SubscribesService):
    """SUBS: receive the messages of all queues of this service (refused by 6.5)."""

    tag: ClassVar[bytes] = b"SUBS"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.ALONE


@dataclass(frozen=True, slots=True)
class SecureQueue(SetsSenderKey):
    """KEY: the recipient sets the sender's key."""

    tag: ClassVar[bytes] = b"KEY"


@dataclass(frozen=True, slots=True)
class ReplaceRecipientKeys(CommandWithBody):
    """RKEY: any of these keys authorizes the recipient from now on."""

    tag: ClassVar[bytes] = b"RKEY"

    keys: tuple[AuthPublicKey, ...]

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.non_empty_list(self.keys, lambda key: out.short_bytes(key.der))

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.non_empty_list(lambda: auth_key_from_der(body.short_bytes())))


@dataclass(frozen=True, slots=True)
class SetLinkData(CommandWithBody):
    """LSET: add or update the data behind the queue's short link."""

    tag: ClassVar[bytes] = b"LSET"

    link_id: bytes
    data: LinkData

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.link_id)
        self.data.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_id(), LinkData.decode(body))


@dataclass(frozen=True, slots=True)
class DeleteLinkData(Command):
    """LDEL"""

    tag: ClassVar[bytes] = b"LDEL"


@dataclass(frozen=True, slots=True)
class EnableNotifications(CommandWithBody):
    """NKEY: make a new notifier id, replacing the old one."""

    tag: ClassVar[bytes] = b"NKEY"

    notifier: NotifierKeys

    def encode_body(self, out: WireWriter, version: int) -> None:
        self.notifier.encode(out)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(NotifierKeys.decode(body))


@dataclass(frozen=True, slots=True)
class DisableNotifications(Command):
    """NDEL"""

    tag: ClassVar[bytes] = b"NDEL"


@dataclass(frozen=True, slots=True)
class GetMessage(Command):
    """GET: the head message, without subscribing."""

    tag: ClassVar[bytes] = b"GET"


@dataclass(frozen=True, slots=True)
class AcknowledgeMessage(CommandWithBody):
    """ACK: delete the message delivered last on this connection."""

    tag: ClassVar[bytes] = b"ACK"

    message_id: bytes

    def encode_body(self, out: WireWriter, version: int) -> None:
        out.short_bytes(self.message_id)

    @classmethod
    def decode_body(cls, body: WireReader, version: int) -> Self:
        return cls(body.short_bytes())


@dataclass(frozen=True, slots=True)
class SuspendQueue(Command):
    """OFF: accept no more messages."""

    tag: ClassVar[bytes] = b"OFF"


@dataclass(frozen=True, slots=True)
class DeleteQueue(Command):
    """DEL"""

    tag: ClassVar[bytes] = b"DEL"


@dataclass(frozen=True, slots=True)
class InspectQueue(Command):
    """QUE: queue information for debugging."""

    tag: ClassVar[bytes] = b"QUE"
