"""Records of an NTF router: device tokens, subscriptions and last notifications.

Records are immutable: a change makes a new one. Keys are DER, ids and secrets are bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

import msgspec

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

KEPT_NOTIFICATIONS: Final = 6
"""The number of a token's notifications that are kept, not counting pending ones: as many as a push carries."""

USED_ADDRESSES: Final = 16
"""Addresses of one SMP router that are worth trying: those with the most subscriptions."""

# Outcomes that the store gives to notifications. The delivery has further ones for pushes.
ACCEPTED: Final = "accepted"
TOKEN_REMOVED: Final = "token_removed"  # noqa: S105
TOKEN_INVALID: Final = "token_invalid"  # noqa: S105
SUBSCRIPTION_REMOVED: Final = "subscription_removed"
EXPIRED: Final = "expired"


class RowLimit(StrEnum):
    """Limits of a store, by the names of their settings."""

    TOKENS = "max_tokens"
    SUBSCRIPTIONS = "max_subscriptions"
    SUBSCRIPTIONS_OF_TOKEN = "max_subscriptions_per_token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The most tokens and subscriptions that a store takes."""

    tokens: int
    subscriptions: int
    subscriptions_of_token: int


@dataclass(frozen=True, slots=True)
class TokenRecord:
    token_id: bytes = field(repr=False)
    device_token: DeviceToken
    status: TokenStatus
    verify_key: bytes = field(repr=False)
    """DER of the public key that authorizes the device's commands."""
    dh_private_key: bytes = field(repr=False)
    """The router's raw X25519 key, so that a repeated TNEW gets the same answer."""
    dh_secret: bytes = field(repr=False)
    """The secret shared with the device, which encrypts its pushes."""
    code: bytes = field(repr=False)
    """The code that TVFY must return."""
    registered_at: int = 0
    """Unix time at which TNEW or TRPL last made it REGISTERED. Older refusals of a provider are void."""
    cron_minutes: int = 0
    cron_sent_at: int | None = None
    """The beginning of the current period: TCRN set it, a periodic push was sent, or the last notification of a deleted
    subscription was received."""
    updated_at: int | None = None
    """Day of last use, as Unix time."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    subscription_id: bytes = field(repr=False)
    token_id: bytes = field(repr=False)
    queue: NotifierQueue
    notifier_key: bytes = field(repr=False)
    """DER of the private key that subscribes at the SMP router. A queue of direct notifications has none, and its
    notifier id is its subscription id."""
    status: SubscriptionStatus
    service_associated: bool = False
    """Its notifications come through the service subscription of its SMP router."""


class ReceivedNotification(NamedTuple):
    """A received NMSG."""

    notifier_id: bytes
    nonce: bytes
    sealed_meta: bytes
    received_at: float
    """Unix time with a fraction, which orders a token's notifications."""
    block: int = 0
    """A number of the block that brought it. In a block the notifications of a queue are in order, oldest first."""


def end_mark(token_id: bytes, notifier_id: bytes) -> bytes:
    """Return the name of the fact that a token has ended a queue. Nobody else's packet can make or find it."""
    return hashlib.sha256(b"ended" + token_id + notifier_id).digest()[: len(notifier_id)]


def repeated_in_order(
    received: Sequence[ReceivedNotification], last_nonce: Callable[[bytes], bytes | None]
) -> set[int]:
    """Return the places of notifications that came before the last stored one of their queue, and of that one.

    After a kill, an SMP router repeats what was not acknowledged, also several of one queue. Only the last one of a
    queue is stored. If it is in a block, those before it were received before too. If it is in a later block than
    others of its queue, those are stored again, and so must be the ones that follow: the last one has to be the newest.
    """
    repeated: set[int] = set()
    if len({each.notifier_id for each in received}) == len(received):
        return repeated
    runs: dict[tuple[bytes, int], list[int]] = {}
    for place, each in enumerate(received):
        runs.setdefault((each.notifier_id, each.block), []).append(place)
    followed: set[bytes] = set()
    """Queues whose last stored notification will be another one when the next block is stored."""
    for (notifier_id, _), places in runs.items():
        if notifier_id in followed:
            continue
        nonce = last_nonce(notifier_id)
        known = [place for place in places if received[place].nonce == nonce]
        if known:
            repeated.update(place for place in places if place <= known[-1])
        if not known or known[-1] != places[-1]:
            followed.add(notifier_id)
    return repeated


class Recorded(NamedTuple):
    """The result for a notification that is stored and waits to be pushed."""

    token_id: bytes
    provider: PushProvider
    superseded: bytes | None
    """The nonce of the queue's pending notification that it replaced."""
    superseded_at: float | None = None
    """The time at which the replaced one was received."""


class NotRecorded(StrEnum):
    UNKNOWN_QUEUE = "unknown_queue"
    """No subscription, or its token is invalid. This is expected, because deletions race with messages."""
    DUPLICATE = "duplicate"
    """The queue's last notification has this nonce, or is newer: SMP routers repeat what may be lost."""


Results: TypeAlias = Sequence[Recorded | NotRecorded]
BeforeCommit: TypeAlias = Callable[[Results], None]
"""Gets the results when all is decided and nothing is on disk yet."""
"""One result for each received notification."""


class LastNotification(msgspec.Struct, frozen=True, gc=False):
    """A queue's last notification that has its outcome. It may be pushed again along with newer ones."""

    pending: ClassVar[bool] = False

    received_at: float
    nonce: bytes
    text: bytes
    """Its text in a push: queue, time, nonce, metadata."""

    def __repr__(self) -> str:
        """Omit the ids in its text."""
        return f"{type(self).__name__}({self.received_at})"


class PendingNotification(LastNotification, frozen=True, gc=False):
    """A notification without an outcome: it must be pushed, or get a named outcome."""

    pending: ClassVar[bool] = True

    subscription_id: bytes
    queue: NotifierQueue


class DuePush(NamedTuple):
    """The notifications to push to one token at this moment."""

    token: TokenRecord
    notifications: tuple[LastNotification, ...]
    """Pending notifications and the others that the store keeps, oldest first."""


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
    engine: str = ""
    """The engine that pushed it. Empty if the store settled it without a push."""

    def __repr__(self) -> str:
        """Omit the ids."""
        return f"SettledNotification({self.outcome!r}, {self.queue!r})"


class Associated(StrEnum):
    """The result of an association by direct notifications."""

    ADDED = "added"
    KNOWN = "known"
    """The same association exists."""
    NO_TOKEN = "no_token"  # noqa: S105
    """The token does not exist or is not active."""
    TAKEN = "taken"
    """The queue belongs to another token, has an ordinary subscription, or its id is not possible."""
    REMOVED = "removed"
    """Its owner removed it before: the packet is an old one, sent again."""


@dataclass(frozen=True, slots=True)
class UsedRouter:
    """An SMP router with wanted subscriptions. It is known by its key hash, whichever hosts and ports clients name."""

    location: RouterLocation
    """The address with the most subscriptions."""
    service_id: bytes | None = field(repr=False)
    """Our service id at this router, if there was one."""
    associated_count: int
    associated_hash: bytes
    """XOR of the hashes of the associated notifier ids (smp.md Appendix C)."""
    individual_count: int
    untried: bool = False
    """It never answered us: all its queues are NEW, and we have no service there."""
    needed: bool = True
    """It is not untried, or an ACTIVE token has a queue there. Others are not worth a connection."""
    other_addresses: tuple[RouterLocation, ...] = ()
    """Other addresses under which clients named it, at most `USED_ADDRESSES` with the first."""
    direct_count: int = 0
    """The associated queues that are of direct notifications."""


@dataclass(frozen=True, slots=True)
class WantedRouter:
    """An SMP router that is worth a connection, as far as that needs no look at all its subscriptions."""

    location: RouterLocation
    other_addresses: tuple[RouterLocation, ...] = ()
    untried: bool = False
    """As of `UsedRouter`."""


class Associations(NamedTuple):
    """Whether we have a service at an SMP router, and queues that are associated with it."""

    service_id: bytes | None
    any: bool


@dataclass(frozen=True, slots=True)
class Accounting:
    """Totals over the life of the store: received = accepted + superseded + all failures + pending."""

    received: int = 0
    accepted: int = 0
    superseded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    pending: int = 0

    @property
    def difference(self) -> int:
        """Notifications without an account. Any but zero means a bug or a loss."""
        return self.received - self.accepted - self.superseded - sum(self.failed.values()) - self.pending
