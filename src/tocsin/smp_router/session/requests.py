"""Verified requests of clients, the router's state they are executed against, and their effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.events.delivery_events import Stage
from tocsin.operate.clock import Clock
from tocsin.operate.command_table import CommandTable
from tocsin.operate.randomness import Randomness
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.sessions import RouterSession
from tocsin.protocol.smp.delivered_messages import Delivered, DeliveredMessage, QuotaMarker, seal_delivered
from tocsin.protocol.smp.proxying import RelayAnswerEnvelope, seal_forwarded_answer
from tocsin.protocol.smp.responses import MessageReceived, RelayAnswer
from tocsin.protocol.smp.sender_commands import MessageFlags
from tocsin.smp_router.session.peers import Delivery, Peer, PeerSubscriptions
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, ServiceRecord, StoredMessage

C = TypeVar("C", bound=Command)


@dataclass(frozen=True, slots=True)
class SmpState:
    """The state of one router, against which commands are executed."""

    settings: SmpSettings
    store: SmpStore
    clock: Clock
    randomness: Randomness
    subscriptions: PeerSubscriptions
    counters: SmpCounters
    events: SmpEvents
    sent_nonces: dict[bytes, dict[bytes, Peer]] = field(default_factory=dict)
    """Nonces of the stored notifications that were sent and not yet confirmed, by notifier id."""
    unstored_services: dict[bytes, ServiceRecord] = field(default_factory=dict)
    """Services without queues, by fingerprint, oldest first (`session.service_records`)."""


class SendEvent(NamedTuple):
    """Send an event to the connection of the command, after the answers of its block."""

    entity_id: bytes
    event: Response


class PushMessage(NamedTuple):
    """Send the head message of a queue to its recipient, before the answers."""

    recipient_id: bytes


class PushNotifications(NamedTuple):
    """Send the stored notifications of a notifier, before the answers."""

    notifier_id: bytes


class AnswerWithFate(NamedTuple):
    """Answer when the NTF router has answered a packet: the response gets the packet's fate."""

    notifier_id: bytes
    packet_id: bytes


class RelayedCommand(NamedTuple):
    """A command that came through a proxy (RFWD), and the keys and nonces that its answer is sealed with."""

    session: RouterSession
    """The session of the sender, inside the envelopes."""
    corr_id: bytes
    entity_id: bytes
    sender_key: BoxKey
    sender_nonce: bytes
    proxy_key: BoxKey
    proxy_nonce: bytes

    def sealed(self, response: Response) -> RelayAnswer:
        """Return the answer for the proxy: sealed for the sender, and then for the proxy."""
        answer = self.session.response(self.corr_id, self.entity_id, response)
        inner = seal_forwarded_answer(self.sender_key, self.sender_nonce, answer)
        return RelayAnswer(
            RelayAnswerEnvelope(self.sender_nonce, inner).seal(self.proxy_key, self.proxy_nonce)
        )


class AnswerWithName(NamedTuple):
    """Answer when the name is resolved."""

    name: str
    relayed: RelayedCommand | None
    """Set if RSLV came through a proxy."""


class SendBacklog(NamedTuple):
    """Send the waiting messages of all queues of a service, after the answer."""

    service_id: bytes


Effect: TypeAlias = (
    SendEvent | PushMessage | PushNotifications | AnswerWithFate | AnswerWithName | SendBacklog
)
"""An action of the router once the changes of a command are on disk. Effects are plain values that tests compare."""


@dataclass(slots=True)
class SmpRequest(Generic[C]):
    """A verified command that names no queue."""

    peer: Peer
    session: RouterSession
    """The session of the command: the connection's, or the one inside a forwarded envelope."""
    corr_id: bytes
    entity_id: bytes
    command: C
    effects: list[Effect] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SmpQueueRequest(SmpRequest[C]):
    """A verified command about the queue that its entity id names."""

    queue: QueueRecord


class SmpCommandTable(CommandTable[Response]):
    """The handlers of an SMP router, which change the store at once; the router commits afterwards."""

    def add(self, command: type[C], handler: Callable[[SmpRequest[C]], Response]) -> None:
        self._add(command, handler)

    def add_for_queue(self, command: type[C], handler: Callable[[SmpQueueRequest[C]], Response]) -> None:
        self._add(command, handler)


def deliver_head(
    state: SmpState, queue: QueueRecord, delivery: Delivery, peer: Peer
) -> MessageReceived | None:
    """Return the head message of the queue and mark it as delivered."""
    message = state.store.head_message(queue.recipient_id)
    if message is None:
        delivery.delivered = None
        return None
    delivery.delivered = message.message_id
    state.counters.messages_delivered += 1
    return seal_message(queue, message, with_priority=is_direct(peer.session.dialect))


def report_dropped(state: SmpState, notifier: NotifierRecord | None) -> None:
    """Report the notifications that go with a notifier. Call it before the notifier is removed.

    Notifications that were sent already are not dropped.
    """
    if notifier is not None:
        sent = state.sent_nonces.get(notifier.notifier_id, ())
        stored = state.store.notifications(notifier.notifier_id)
        dropped = [each for each in stored if each.nonce not in sent]
        state.events.record(
            Stage.DROPPED,
            [NamedNotification(notifier.notifier_id, each.nonce, each.sent_at) for each in dropped],
        )


def seal_message(queue: QueueRecord, message: StoredMessage, *, with_priority: bool) -> MessageReceived:
    """Return a stored message as its recipient receives it. The bytes are the same each time.

    Recipients without direct notifications see the flag only, as from every router.
    """
    delivered: Delivered
    if message.body is None:
        delivered = QuotaMarker(message.sent_at)
    else:
        flags = MessageFlags.of_priority(message.priority if with_priority else int(message.notify))
        delivered = DeliveredMessage(message.sent_at, flags, message.body)
    sealed = seal_delivered(box_key(queue.dh_secret), message.message_id, delivered)
    return MessageReceived(message.message_id, sealed)


class NamedNotification(NamedTuple):
    """The identity of a notification."""

    notifier_id: bytes
    nonce: bytes
    sent_at: int
    """Time of its message. It selects the period whose key hides the notification in the event log."""


class SmpEvents(Protocol):
    """Receives the stages that notifications reach. Calls must be quick and must not raise."""

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        """Record ENQUEUED, SENT, EXPIRED or DROPPED. SENT is recorded again when a notification is sent again.

        `priority` is that of the message, with ENQUEUED only.
        """


class NoSmpEvents:
    """Ignores all reports."""

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        pass
