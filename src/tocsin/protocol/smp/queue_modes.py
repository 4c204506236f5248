"""Properties of a queue in NEW, IDS and the link commands, other than its keys (smp.md 6.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeVar

from tocsin.crypto.keys import AuthPublicKey, X25519PublicKey, auth_key_from_der, dh_key_from_der
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

E = TypeVar("E", bound=Enum)


class SubscriptionMode(Enum):
    SUBSCRIBE = b"S"
    CREATE_ONLY = b"C"


class QueueMode(Enum):
    MESSAGING = b"M"
    """The sender may secure the queue."""
    CONTACT = b"C"


@dataclass(frozen=True, slots=True)
class LinkData:
    """Opaque data behind a short link."""

    fixed: bytes
    user: bytes

    def encode(self, out: WireWriter) -> None:
        out.large_bytes(self.fixed).large_bytes(self.user)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(body.large_bytes(), body.large_bytes())


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """Link data in NEW. The sender id is the client's choice; the link id too, for contact queues only."""

    link_id: bytes | None
    sender_id: bytes
    data: LinkData


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """queueReq = "M" maybe(bs(senderId) linkData) | "C" maybe(bs(linkId) bs(senderId) linkData)"""

    mode: QueueMode
    link: LinkRequest | None = None

    def encode(self, out: WireWriter) -> None:
        out.raw(self.mode.value)
        out.maybe(self.link, lambda link: self._encode_link(out, link))

    def _encode_link(self, out: WireWriter, link: LinkRequest) -> None:
        if (link.link_id is not None) != (self.mode is QueueMode.CONTACT):
            raise LocalProtocolError("the client chooses the link id of contact queues, and of no others")
        if link.link_id is not None:
            out.short_bytes(link.link_id)
        out.short_bytes(link.sender_id)
        link.data.encode(out)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        mode = decode_letter(QueueMode, body)

        def link() -> LinkRequest:
            link_id = body.short_id() if mode is QueueMode.CONTACT else None
            return LinkRequest(link_id, body.short_id(), LinkData.decode(body))

        return cls(mode, body.maybe(link))


@dataclass(frozen=True, slots=True)
class NotifierKeys:
    """A recipient's keys for notifications: the notifier's key, and its own key for the metadata."""

    auth_key: AuthPublicKey
    dh_key: X25519PublicKey

    def encode(self, out: WireWriter) -> None:
        out.short_bytes(self.auth_key.der).short_bytes(self.dh_key.der)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(auth_key_from_der(body.short_bytes()), dh_key_from_der(body.short_bytes()))


@dataclass(frozen=True, slots=True)
class NotifierIds:
    """The router's answer: the notifier id, and its key for the metadata."""

    notifier_id: bytes = field(repr=False)
    dh_key: X25519PublicKey

    def encode(self, out: WireWriter) -> None:
        out.short_bytes(self.notifier_id).short_bytes(self.dh_key.der)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(body.short_id(), dh_key_from_der(body.short_bytes()))


def decode_letter(kind: type[E], body: WireReader) -> E:
    letter = body.take(1)
    try:
        return kind(letter)
    except ValueError as error:
        raise DecodeError(f"{letter!r} is no {kind.__name__}") from error
