"""What an agent tells its app."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tocsin.agent.store.records import NextAction
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import TokenStatus


@dataclass(frozen=True, slots=True)
class TokenRecreated:
    """The NTF router did not know the token any more: another was registered, and waits for its verification."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class TokenStatusChanged:
    status: TokenStatus


@dataclass(frozen=True, slots=True)
class TokenNotDeleted:
    """The NTF router refused to delete a former token; it is not tried again."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class NotificationsFailed:
    """A connection's notifications could not be set up or removed, and will not by themselves until the next check."""

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
    """By the SMP router's clock, seconds since 1970."""
    body: bytes = field(repr=False)
    number: int = field(default=0, repr=False, compare=False)
    """Of the message in the agent's store, until it is settled."""


@dataclass(frozen=True, slots=True)
class MessageUnreadable:
    """A message that was received, acknowledged and cannot be opened."""

    connection_id: str
    message_id: bytes
    reason: TocsinError
    number: int = field(default=0, repr=False, compare=False)


MessageEvent: TypeAlias = MessageArrived | MessageUnreadable


@dataclass(frozen=True, slots=True)
class QueueRotated:
    """The connection receives by a new queue."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class SubscriptionTaken:
    """Another agent receives the connection's messages now."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class RouterDown:
    """The connection to an SMP router with subscribed queues was lost; it is made again."""

    router: RouterLocation
    reason: TocsinError


@dataclass(frozen=True, slots=True)
class RouterUp:
    router: RouterLocation


@dataclass(frozen=True, slots=True)
class AgentTrouble:
    """Something that should not happen, in a part of the agent that goes on nevertheless."""

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
