"""What is shared by everything that executes commands, and what one command brings along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tocsin.crypto.boxes import box_key
from tocsin.operate.surroundings import Clock, Randomness
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.sessions import RouterSession
from tocsin.protocol.smp.delivered_messages import Delivered, DeliveredMessage, QuotaMarker, seal_delivered
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.protocol.smp.sender_commands import MessageFlags
from tocsin.smp_router.session.events import Named, SmpEvents
from tocsin.smp_router.session.peers import Delivery, Peer
from tocsin.smp_router.session.subscriptions import Subscriptions
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, StoredMessage


@dataclass(frozen=True, slots=True)
class RouterState:
    """One router's parts."""

    settings: SmpSettings
    store: SmpStore
    clock: Clock
    randomness: Randomness
    subscriptions: Subscriptions
    counters: SmpCounters
    events: SmpEvents
    under_way: dict[bytes, set[bytes]] = field(default_factory=dict)
    """Nonces of the stored notifications that have left, by notifier id."""


@dataclass(slots=True)
class Task:
    """A command that is verified, and what is to follow once its changes are on disk."""

    peer: Peer
    session: RouterSession
    """The session of the command: the connection's, or the one inside a forwarded envelope."""
    corr_id: bytes
    entity_id: bytes
    command: Command
    queue: QueueRecord | None
    """The queue that the entity id names, for commands about one."""
    messages: list[tuple[bytes, MessageReceived]] = field(default_factory=list)
    """To this connection, behind the answers of the block."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """To others, before the answers."""
    answered_later: Callable[[], Awaitable[Response]] | None = None
    """Set by a command that is executed and whose answer has to wait: this gives it, when all is on disk."""
    following: Callable[[], Awaitable[None]] | None = None
    """To this connection, after the answer of a command that takes its time."""


Execute: TypeAlias = Callable[[Task], Response]


def deliver_head(state: RouterState, queue: QueueRecord, delivery: Delivery) -> MessageReceived | None:
    """The head message, marked as delivered."""
    message = state.store.head_message(queue.recipient_id)
    if message is None:
        delivery.delivered = None
        return None
    delivery.delivered = message.message_id
    state.counters.messages_delivered += 1
    state.counters.messages_fetched += delivery.by_get
    return sealed_message(queue, message)


def tell_dropped(state: RouterState, notifier: NotifierRecord | None) -> None:
    """To be called before a notifier goes: with it goes what is stored for it. What has left is not dropped."""
    if notifier is not None:
        sent = state.under_way.get(notifier.notifier_id, ())
        stored = state.store.notifications(notifier.notifier_id)
        dropped = [each for each in stored if each.nonce not in sent]
        state.events.dropped([Named(notifier.notifier_id, each.nonce, each.sent_at) for each in dropped])


def sealed_message(queue: QueueRecord, message: StoredMessage) -> MessageReceived:
    """A stored message as the recipient gets it; the same each time."""
    delivered: Delivered
    if message.body is None:
        delivered = QuotaMarker(message.sent_at)
    else:
        delivered = DeliveredMessage(message.sent_at, MessageFlags(message.notify), message.body)
    sealed = seal_delivered(box_key(queue.dh_secret), message.message_id, delivered)
    return MessageReceived(message.message_id, sealed)
