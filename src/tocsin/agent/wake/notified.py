"""Results of a wake, and the decision which queues of a push have news (ntf.md 6.11, behaviours D1, D7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tocsin.agent.runtime.events import MessageArrived, MessageEvent
from tocsin.agent.store.records import NotifiedQueue
from tocsin.crypto.boxes import box_key
from tocsin.errors import CryptoError, DecodeError, RemoteProtocolError, TocsinError
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.pushes import PushedNotification
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.smp.delivered_messages import NotificationMeta, unseal_meta


class Unreadable(Enum):
    """Why an item of a push leads to no queue."""

    SYNTAX = "it is not a notification"
    UNKNOWN_QUEUE = "no connection has this queue"
    METADATA = "its metadata cannot be decrypted"


@dataclass(frozen=True, slots=True)
class UnreadableItem:
    position: int
    """From 0, oldest first."""
    reason: Unreadable
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ToFetch:
    """A queue that has a message, according to the push."""

    connection_id: str
    number: int
    notified_at: int | None = None
    """When the NTF router received the notification, in seconds since 1970."""
    meta: NotificationMeta | None = None
    """Which message, if that is readable."""

    @property
    def is_mention(self) -> bool:
        """Whether the push announced a mention or a reply, or something more important."""
        return self.meta is not None and self.meta.is_mention


@dataclass(frozen=True, slots=True)
class TokenVerified:
    """The push carried a code, and the token now has this status."""

    status: TokenStatus


@dataclass(frozen=True, slots=True)
class Woken:
    to_fetch: tuple[ToFetch, ...]
    unreadable: tuple[UnreadableItem, ...] = ()
    already_received: int = 0
    """Number of items about messages that this agent already has."""


WakeResult: TypeAlias = TokenVerified | Woken


@dataclass(frozen=True, slots=True)
class Fetched:
    """The messages of one queue."""

    item: ToFetch
    messages: tuple[MessageEvent, ...] = ()
    """Messages that the app has to settle (`Agent.settled`)."""
    failure: TocsinError | None = None
    """Why there may be more."""
    minimum: MinimumPriority = MinimumPriority.ALL
    """The lowest priority for which the user wants a notification of this connection."""

    @property
    def to_show(self) -> tuple[MessageArrived, ...]:
        """The messages to notify the user of. A muted message is never shown in place of a mention."""
        arrived = (each for each in self.messages if isinstance(each, MessageArrived))
        return tuple(each for each in arrived if self.minimum.admits(each.priority))


def choose_queues(
    items: Sequence[PushedNotification | DecodeError], known: Sequence[NotifiedQueue | None]
) -> Woken:
    """Decide what to fetch. `known` has the queue, if there is one, of each readable item."""
    queues = iter(known)
    to_fetch: dict[tuple[str, int], ToFetch] = {}
    unreadable: list[UnreadableItem] = []
    already = 0
    for position, item in enumerate(items):
        if isinstance(item, DecodeError):
            unreadable.append(UnreadableItem(position, Unreadable.SYNTAX, str(item)))
            continue
        queue = next(queues)
        if queue is None:
            unreadable.append(UnreadableItem(position, Unreadable.UNKNOWN_QUEUE))
            continue
        opened = _meta(queue, item)
        meta = opened if isinstance(opened, NotificationMeta) else None
        if isinstance(opened, TocsinError):
            unreadable.append(UnreadableItem(position, Unreadable.METADATA, str(opened)))
        is_last = position == len(items) - 1
        if is_last or (meta is not None and _is_news(queue, meta)):
            name = (queue.connection_id, queue.number)
            to_fetch[name] = ToFetch(*name, item.received_at, meta)
        elif meta is not None:
            already += 1
    return Woken(tuple(to_fetch.values()), tuple(unreadable), already)


def _is_news(queue: NotifiedQueue, meta: NotificationMeta) -> bool:
    """Times are whole seconds: of the same second, only the last message is known to have been received."""
    if queue.last_message_at is None or meta.sent_at > queue.last_message_at:
        return True
    return meta.sent_at == queue.last_message_at and meta.message_id != queue.last_message_id


def _meta(queue: NotifiedQueue, item: PushedNotification) -> NotificationMeta | TocsinError:
    try:
        return unseal_meta(box_key(queue.secret), item.nonce, item.sealed_meta)
    except (CryptoError, RemoteProtocolError) as error:
        return error
