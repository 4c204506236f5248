"""What an NTF router remembers of a device token, of a subscription, and of the notifications that came last.

Records are immutable: a change replaces one. Keys are kept as DER, ids and secrets as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

import msgspec

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

KEPT_NOTIFICATIONS: Final = 6
"""Of each token, besides those that are pending: as many as a push carries."""

# Outcomes that the store itself gives to notifications; those of pushes come from the delivery.
ACCEPTED: Final = "accepted"
TOKEN_REMOVED: Final = "token_removed"  # noqa: S105
TOKEN_INVALID: Final = "token_invalid"  # noqa: S105
SUBSCRIPTION_REMOVED: Final = "subscription_removed"
EXPIRED: Final = "expired"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    token_id: bytes = field(repr=False)
    device_token: DeviceToken
    status: TokenStatus
    verify_key: bytes = field(repr=False)
    """DER of the public key that authorizes the device's commands."""
    dh_private_key: bytes = field(repr=False)
    """Raw X25519 key of the router's side, so that a repeated TNEW gets the same answer."""
    dh_secret: bytes = field(repr=False)
    """Shared with the device; encrypts what is pushed to it."""
    code: bytes = field(repr=False)
    """What TVFY must bring back."""
    registered_at: int = 0
    """When TNEW or TRPL last made it REGISTERED, seconds since 1970; a provider's older refusals are void."""
    cron_minutes: int = 0
    cron_sent_at: int | None = None
    updated_at: int | None = None
    """Day of last use, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    subscription_id: bytes = field(repr=False)
    token_id: bytes = field(repr=False)
    queue: NotifierQueue
    notifier_key: bytes = field(repr=False)
    """DER of the private key that subscribes at the SMP router; empty for a queue of direct notifications, which has
    its notifier id for subscription id."""
    status: SubscriptionStatus
    service_associated: bool = False
    """Its notifications come through the service subscription of its SMP router."""


class ReceivedNotification(NamedTuple):
    """NMSG, as it came."""

    notifier_id: bytes
    nonce: bytes
    sealed_meta: bytes
    received_at: float
    """Seconds since 1970, with a fraction: the order of a token's notifications."""


class Recorded(NamedTuple):
    """A notification is stored and waits to be pushed."""

    token_id: bytes
    provider: PushProvider
    superseded: bytes | None
    """The nonce of the one of the same queue that it replaced before that was pushed."""
    superseded_at: float | None = None
    """When that one was received."""


class NotRecorded(StrEnum):
    UNKNOWN_QUEUE = "unknown_queue"
    """No subscription, or its token is not active: expected, since deletions race with messages."""
    DUPLICATE = "duplicate"
    """The nonce is that of the queue's last one: an SMP router sends again what it is not sure of."""


class LastNotification(msgspec.Struct, frozen=True, gc=False):
    """One queue's last notification, which was pushed or came to its end otherwise: it may be pushed again."""

    pending: ClassVar[bool] = False

    received_at: float
    nonce: bytes
    text: bytes
    """What a push says of it: queue, time, nonce, metadata."""

    def __repr__(self) -> str:
        """Without the ids in its text."""
        return f"{type(self).__name__}({self.received_at})"


class PendingNotification(LastNotification, frozen=True, gc=False):
    """One that is not settled yet: it must be in a push, or get a named outcome."""

    pending: ClassVar[bool] = True

    subscription_id: bytes
    queue: NotifierQueue


class DuePush(NamedTuple):
    """What there is to push to one token, at this moment."""

    token: TokenRecord
    notifications: tuple[LastNotification, ...]
    """Oldest first: those that are pending, and of the others as many as the store keeps."""


class SettledNotification(msgspec.Struct, frozen=True, gc=False):
    """A notification with its final outcome.

    The delivery settles what it pushed; such a record is void if a newer notification of the queue has arrived
    meanwhile. The store settles what it removes, and what is too old.
    """

    token_id: bytes
    subscription_id: bytes
    nonce: bytes
    outcome: str
    """`accepted`, or the reason of the failure."""
    # For the event log:
    queue: NotifierQueue
    provider: PushProvider = PushProvider.APNS_NULL
    received_at: float = 0.0
    attempt: int = 0

    def __repr__(self) -> str:
        """Without the ids."""
        return f"SettledNotification({self.outcome!r}, {self.queue!r})"


class Associated(StrEnum):
    """What became of an association by direct notifications."""

    ADDED = "added"
    KNOWN = "known"
    """It is there already."""
    NO_TOKEN = "no_token"  # noqa: S105
    """The token does not exist or is not active."""
    TAKEN = "taken"
    """The queue is another token's, or is subscribed to in the old way, or the id cannot be one."""
    REMOVED = "removed"
    """Its owner has ended it before: somebody sends an old packet again."""


class SubscriptionPage(NamedTuple):
    """Some of an SMP router's queues that are to be subscribed one by one."""

    queues: tuple[tuple[bytes, bytes], ...]
    """Notifier id, DER of its key; in the order of the cursor."""
    cursor: bytes | None
    """Where the next page begins; None after the last one."""


@dataclass(frozen=True, slots=True)
class UsedRouter:
    """An SMP router with subscriptions that are wanted."""

    location: RouterLocation
    service_id: bytes | None = field(repr=False)
    """Ours at this router, if there was one."""
    associated_count: int
    associated_hash: bytes
    """XOR of the hashes of the associated notifier ids (smp.md Appendix C)."""
    individual_count: int


@dataclass(frozen=True, slots=True)
class Accounting:
    """received = accepted + superseded + all failures + pending, for the life of the store."""

    received: int = 0
    accepted: int = 0
    superseded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    pending: int = 0

    @property
    def difference(self) -> int:
        """Not zero: a bug or a loss."""
        return self.received - self.accepted - self.superseded - sum(self.failed.values()) - self.pending
