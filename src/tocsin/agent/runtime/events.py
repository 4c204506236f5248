"""Events that an agent reports to its app, and the queue in which they wait."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tocsin.agent.store.records import NextAction
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY

LIMIT: Final = 1024
"""Reports that wait for the app."""


@dataclass(frozen=True, slots=True)
class TokenRecreated:
    """The NTF router no longer knew the token, so the agent registered another one, which needs verification."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class TokenStatusChanged:
    status: TokenStatus


@dataclass(frozen=True, slots=True)
class TokenNotDeleted:
    """The NTF router refused to delete a former token. The agent does not try again."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class NotificationsFailed:
    """Setting up or removing a connection's notifications failed. The agent tries again at the next check."""

    connection_id: str
    action: NextAction
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class NotificationsReady:
    """The NTF router has a subscription for the connection."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class NotificationsRemoved:
    connection_id: str


@dataclass(frozen=True, slots=True)
class ConnectionReady:
    """Both sides can send."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class MessageArrived:
    connection_id: str
    message_id: bytes
    sent_at: int
    """Seconds since 1970, by the SMP router's clock."""
    body: bytes = field(repr=False)
    priority: int = 1
    """0 to 3, from its sender. SMP routers without direct notifications deliver 0 and 1 only."""
    number: int = field(default=0, repr=False, compare=False)
    """The message's number in the agent's store, until the app settles it."""

    @property
    def is_mention(self) -> bool:
        """Whether it is a mention or a reply, or more important."""
        return self.priority >= MENTION_PRIORITY


@dataclass(frozen=True, slots=True)
class MessageUnreadable:
    """The agent received and acknowledged a message that it cannot open."""

    connection_id: str
    message_id: bytes
    reason: TocsinError
    number: int = field(default=0, repr=False, compare=False)


MessageEvent: TypeAlias = MessageArrived | MessageUnreadable


@dataclass(frozen=True, slots=True)
class QueueRotated:
    """The connection receives through a new queue."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class SubscriptionTaken:
    """Another agent receives the connection's messages now."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class RouterDown:
    """The connection to an SMP router with subscribed queues was lost. The agent reconnects."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class RouterUp:
    router: RouterLocation


@dataclass(frozen=True, slots=True)
class AgentTrouble:
    """An unexpected error in a part of the agent, which continues nevertheless."""

    where: str
    reason: Exception


AgentEvent: TypeAlias = (
    TokenRecreated
    | TokenStatusChanged
    | TokenNotDeleted
    | NotificationsFailed
    | NotificationsReady
    | NotificationsRemoved
    | ConnectionReady
    | MessageArrived
    | MessageUnreadable
    | QueueRotated
    | SubscriptionTaken
    | RouterDown
    | RouterUp
    | AgentTrouble
)


class EventQueue:
    """The queue of one reader. If it does not read, the oldest reports are dropped. Messages have their own limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._events: deque[AgentEvent] = deque()
        self._reports = 0
        self._there = asyncio.Event()
        self.dropped = 0
        """Number of reports that were dropped unread."""

    def tell(self, event: AgentEvent) -> None:
        """Add a report."""
        if self._reports >= self._limit:
            oldest = next(at for at, each in enumerate(self._events) if not isinstance(each, MessageEvent))
            del self._events[oldest]
            self._reports -= 1
            self.dropped += 1
        self._reports += 1
        self._append(event)

    def deliver(self, message: MessageEvent) -> None:
        """Add a message. `MessageInbox` limits how many there are."""
        self._append(message)

    def _append(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._there.set()

    async def next(self) -> AgentEvent:
        while not self._events:
            self._there.clear()
            await self._there.wait()
        return self._taken()

    def waiting(self) -> list[AgentEvent]:
        """Take out all events."""
        return [self._taken() for _ in range(len(self._events))]

    def _taken(self) -> AgentEvent:
        event = self._events.popleft()
        if not isinstance(event, MessageEvent):
            self._reports -= 1
        return event
