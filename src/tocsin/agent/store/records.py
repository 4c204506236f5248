"""What a device remembers: its connections with their queues, its token, and its notification subscriptions.

Records are immutable: a change replaces one. Private keys and secrets never show in a `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TypeAlias

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus


class NotificationMode(StrEnum):
    INSTANT = "INSTANT"
    """A push for every message: each connection has a subscription at the NTF router."""
    PERIODIC = "PERIODIC"
    """A push every now and then that tells the device to look: no subscriptions."""


# Connections


@dataclass(frozen=True, slots=True)
class AgentConnection:
    connection_id: str
    """16 characters of base64url: 12 random bytes."""
    notifications: bool = True
    """Whether its messages are notified of, in instant mode."""
    minimum: MinimumPriority = MinimumPriority.ALL
    """From which priority on, where the SMP router knows priorities."""

    @property
    def wanted(self) -> MinimumPriority:
        """What its SMP router is to have."""
        return self.minimum if self.notifications else MinimumPriority.OFF


@dataclass(frozen=True, slots=True)
class QueueNotifier:
    """Credentials of a queue's notifications; the NTF router is given id and key, never the secret."""

    notifier_id: bytes = field(repr=False)
    key: bytes | None = field(repr=False)
    """DER of the private key; None with direct notifications, where nobody has one."""
    secret: bytes = field(repr=False)
    """Decrypts the metadata."""
    minimum: MinimumPriority = MinimumPriority.ALL
    """What the SMP router has."""

    @property
    def direct(self) -> bool:
        return self.key is None


@dataclass(frozen=True, slots=True)
class ReceiveQueue:
    """A queue that this device reads."""

    connection_id: str
    number: int
    """Counted from 1 within the connection; 2 after a rotation."""
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
    """DER of the key that secured the queue, once it is."""
    notifier: QueueNotifier | None = None
    last_message_at: int | None = None
    """The SMP router's time of the newest message that was received, seconds since 1970."""
    primary: bool = True
    """Of the queues of a connection the one that is subscribed and notified of; the others are on their way out."""
    last_message_id: bytes | None = field(default=None, repr=False)
    """Of the message that was received last: its acknowledgement may have been lost."""


@dataclass(frozen=True, slots=True)
class NotifiedQueue:
    """What a wake has to know of a receive queue."""

    connection_id: str
    number: int
    secret: bytes = field(repr=False)
    """Of its notifier: decrypts the metadata."""
    last_message_at: int | None = None


@dataclass(frozen=True, slots=True)
class PriorityChange:
    """A queue whose SMP router has another minimum than its connection is to have."""

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
    """A message that was received and that the app has not settled."""

    connection_id: str
    queue_number: int
    message_id: bytes = field(repr=False)
    sent_at: int | None
    """The SMP router's time, seconds since 1970; None if that cannot be read."""
    body: bytes | None = field(repr=False)
    """None if it cannot be opened."""
    reason: str = ""
    """Why."""
    number: int = 0
    """Given by the store, in the order of arrival."""


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
class Register:
    """TNEW is to be sent."""


@dataclass(frozen=True, slots=True)
class Verify:
    """TVFY with this code is to be sent."""

    code: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Check:
    """Verified: it is checked from time to time."""


TokenAction: TypeAlias = Register | Verify | Check


@dataclass(frozen=True, slots=True)
class AgentToken:
    device_token: DeviceToken
    router: RouterLocation
    """The NTF router it is registered at, or is to be."""
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


@dataclass(frozen=True, slots=True)
class TokenToDelete:
    """TDEL is still to be sent."""

    number: int
    router: RouterLocation
    token_id: bytes = field(repr=False)
    key: bytes = field(repr=False)
    created_at: int


@dataclass(frozen=True, slots=True)
class EndpointSecret:
    """Opens the bodies that come to a Web Push endpoint."""

    device_token: DeviceToken
    """Made of the endpoint and the public half of the secret."""
    secret: bytes = field(repr=False)
    """As `WebPushSecret` takes it."""


# Notification subscriptions


class NextAction(Enum):
    """What a worker does next for a connection's notifications. The value is the letter in the database."""

    CREATE_KEYS = "K"
    """NSKEY at the SMP router if that and the NTF router know direct notifications, NKEY if not."""
    CREATE_OLD_KEYS = "O"
    """NKEY at the SMP router: the NTF router does not take packets."""
    ASK_FATE = "F"
    """NPKT at the SMP router: what became of the packet."""
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
    """The SMP router has given notifier credentials."""
    CREATED = "CREATED"
    """The NTF router has a subscription; it has a status there."""
    OFF = "OFF"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class AgentSubscription:
    """One connection's notifications, and what is to be done about them next."""

    connection_id: str
    smp_router: RouterLocation
    ntf_router: RouterLocation
    phase: SubscriptionPhase
    action: NextAction | None
    """None: nothing, since an error that will not pass."""
    due_at: float | None = None
    """Seconds since 1970; not before. None with an action: at once."""
    notifier_id: bytes | None = field(default=None, repr=False)
    subscription_id: bytes | None = field(default=None, repr=False)
    token_id: bytes | None = field(default=None, repr=False)
    """Whose subscription it is, or who signed the packet: one of a former token is worth nothing."""
    status: SubscriptionStatus | None = None
    """At the NTF router, as of the last check."""
    version: int = 0
    """Grows with every change: whoever finished an action finds out whether it was replaced meanwhile."""

    @property
    def direct(self) -> bool:
        """Whether a packet was sent for it: then the NTF router knows it by the id of its notifier."""
        return self.token_id is not None and self.subscription_id in (None, self.notifier_id)
