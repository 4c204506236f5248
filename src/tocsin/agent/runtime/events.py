"""Events that an agent reports to its app."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tocsin.agent.store.records import NextAction
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY


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
