"""Records of a device: its connections with their queues, its token, and its notification subscriptions.

Records are immutable: a change replaces one. Private keys and secrets never show in a `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenState, TokenStatus


class NotificationMode(StrEnum):
    INSTANT = "INSTANT"
    """A push for every message: each connection has a subscription at the NTF router."""
    PERIODIC = "PERIODIC"
    """An occasional push that tells the device to check for messages: no subscriptions."""


# Connections


@dataclass(frozen=True, slots=True)
class AgentConnection:
    connection_id: str
    """16 characters of base64url: 12 random bytes."""
    notifications: bool = True
    """Whether the user wants notifications of its messages, in instant mode."""
    minimum: MinimumPriority = MinimumPriority.ALL
    """The lowest priority that notifies, if the SMP router supports priorities."""

    @property
    def wanted(self) -> MinimumPriority:
        """The minimum priority that its SMP router should have."""
        return self.minimum if self.notifications else MinimumPriority.OFF


@dataclass(frozen=True, slots=True)
class QueueNotifier:
    """Credentials of a queue's notifications. The NTF router gets id and key, never the secret."""

    notifier_id: bytes = field(repr=False)
    key: bytes | None = field(repr=False)
    """DER of the private key; None with direct notifications, which have no key."""
    secret: bytes = field(repr=False)
    """Decrypts the metadata."""
    minimum: MinimumPriority = MinimumPriority.ALL
    """The minimum priority that the SMP router has."""

    @property
    def direct(self) -> bool:
        return self.key is None


@dataclass(frozen=True, slots=True)
class ReceiveQueue:
    """A queue that this device reads."""

    connection_id: str
    number: int
    """Counted from 1 within the connection: 2 after one rotation."""
    router: RouterLocation
    recipient_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    """DER of the private key that authorizes the recipient's commands."""
    secret: bytes = field(repr=False)
    """Shared with the SMP router; decrypts what it delivers."""
    sender_id: bytes = field(repr=False)
    peer_key: bytes = field(repr=False)
    """Raw X25519 private key: messages are encrypted to its public half, which is in the invitation."""
    sender_key: bytes | None = field(default=None, repr=False)
    """DER of the key that secured the queue, once it is secured."""
    notifier: QueueNotifier | None = None
    last_message_at: int | None = None
    """The SMP router's time of the newest message that was received, seconds since 1970."""
    primary: bool = True
    """Whether this queue of the connection is in use and notifies; the others are being replaced or removed."""
    last_message_id: bytes | None = field(default=None, repr=False)
    """The id of the last message that was received, whose acknowledgement may have been lost."""


@dataclass(frozen=True, slots=True)
class NotifiedQueue:
    """The fields of a receive queue that a wake needs."""

    connection_id: str
    number: int
    secret: bytes = field(repr=False)
    """The notifier's secret, which decrypts the metadata."""
    last_message_at: int | None = None
    last_message_id: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PriorityChange:
    """A queue whose SMP router has another minimum priority than its connection wants."""

    connection_id: str
    number: int
    recipient_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    """DER of the recipient's private key."""
    notifier_id: bytes = field(repr=False)
    """A minimum belongs to a notifier."""
    present: MinimumPriority
    wanted: MinimumPriority


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that the agent received and the app has not settled."""

    connection_id: str
    queue_number: int
    message_id: bytes = field(repr=False)
    sent_at: int | None
    """The SMP router's time in seconds since 1970; None if it is unreadable."""
    body: bytes | None = field(repr=False)
    """None if the message cannot be opened."""
    reason: str = ""
    """Why it cannot be opened."""
    priority: int = 1
    """0 to 3, from its sender; 2 for a mention or a reply."""
    number: int = 0
    """Assigned by the store in order of arrival."""


@dataclass(frozen=True, slots=True)
class SendQueue:
    """A queue of the other side that this device writes to."""

    connection_id: str
    number: int
    router: RouterLocation
    sender_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    """DER of the private key that authorizes messages."""
    peer_key: bytes = field(repr=False)
    """Raw X25519 public key of the recipient."""
    secured: bool = False


# The token


@dataclass(frozen=True, slots=True)
class RegistrationDue:
    """The agent has to send TNEW."""


@dataclass(frozen=True, slots=True)
class VerificationDue:
    """The agent has to send TVFY with this code."""

    code: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CheckDue:
    """The token is verified. The agent checks it from time to time."""


TokenAction: TypeAlias = RegistrationDue | VerificationDue | CheckDue

ACTIVE: Final = TokenStatus(TokenState.ACTIVE)


@dataclass(frozen=True, slots=True)
class AgentToken:
    device_token: DeviceToken
    router: RouterLocation
    """The NTF router where it is or will be registered."""
    key: bytes = field(repr=False)
    """DER of the private key that authorizes commands."""
    dh_key: bytes = field(repr=False)
    """Raw X25519 private key: kept to repeat TNEW."""
    status: TokenStatus
    action: TokenAction | None
    mode: NotificationMode
    token_id: bytes | None = field(default=None, repr=False)
    secret: bytes | None = field(default=None, repr=False)
    """Shared with the NTF router; decrypts pushes."""
    ntf_key: NtfKeyOffer | None = None
    """The newest key for packets, if the NTF router knows direct notifications."""


def is_active(token: AgentToken | None) -> bool:
    return token is not None and token.status == ACTIVE and token.token_id is not None


def notifies_instantly(token: AgentToken | None) -> bool:
    """Whether connections need subscriptions (behaviour D2)."""
    return token is not None and is_active(token) and token.mode is NotificationMode.INSTANT


@dataclass(frozen=True, slots=True)
class TokenToDelete:
    """A former token for which the agent has to send TDEL."""

    number: int
    router: RouterLocation
    token_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    created_at: int


@dataclass(frozen=True, slots=True)
class EndpointSecret:
    """The secret that opens bodies sent to a Web Push endpoint."""

    device_token: DeviceToken
    """Made of the endpoint and the public half of the secret."""
    secret: bytes = field(repr=False)
    """The bytes of a `WebPushSecret`."""


# Notification subscriptions


class NextAction(Enum):
    """The next thing a worker does for a connection's notifications. The value is the letter in the database."""

    CREATE_KEYS = "K"
    """NSKEY at the SMP router if both routers support direct notifications, otherwise NKEY."""
    CREATE_OLD_KEYS = "O"
    """NKEY at the SMP router: the NTF router does not accept packets."""
    ASK_FATE = "F"
    """NPKT at the SMP router, to ask what happened to the packet."""
    SEND_PACKET = "P"
    """NPKT at the SMP router, with a packet for another key of the NTF router."""
    DELETE_KEYS = "D"
    """NDEL at the SMP router."""
    SUBSCRIBE = "N"
    """SNEW at the NTF router."""
    CHECK = "C"
    """SCHK at the NTF router."""

    @property
    def at_smp_router(self) -> bool:
        return self not in (NextAction.SUBSCRIBE, NextAction.CHECK)


class SubscriptionPhase(StrEnum):
    NEW = "NEW"
    KEY = "KEY"
    """The SMP router has created notifier credentials."""
    CREATED = "CREATED"
    """The NTF router has a subscription, with a status."""
    OFF = "OFF"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class AgentSubscription:
    """The state of one connection's notifications and the next action for them."""

    connection_id: str
    smp_router: RouterLocation
    ntf_router: RouterLocation
    phase: SubscriptionPhase
    action: NextAction | None
    """None: the agent gave up after a permanent error."""
    due_at: float | None = None
    """Seconds since 1970 before which the action waits. None with an action: at once."""
    notifier_id: bytes | None = field(default=None, repr=False)
    subscription_id: bytes | None = field(default=None, repr=False)
    token_id: bytes | None = field(default=None, repr=False)
    """The token that owns the subscription or signed the packet. One of a former token is worthless."""
    status: SubscriptionStatus | None = None
    """At the NTF router, as of the last check."""
    version: int = 0
    """Grows with every change, so that a worker notices when the row was replaced during its action."""

    @property
    def direct(self) -> bool:
        """Whether a packet was sent for it, so that the NTF router knows it by the id of its notifier."""
        return self.token_id is not None and self.subscription_id in (None, self.notifier_id)
