"""The interface of an NTF router's store, and of a whole store that is transferred.

The store is the truth: the router keeps no copy of a token or subscription, so the next command sees what an operator
changed in the database. Every method is atomic, and its changes are on disk when it returns. A batch costs about as
much as a single item. Methods raise `StoreError` when the store cannot be reached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from tocsin.crypto.credentials import Credentials
from tocsin.errors import StoreError
from tocsin.ntf_router.store.records import (
    Accounting,
    Associated,
    Associations,
    BeforeCommit,
    DuePush,
    ReceivedNotification,
    Results,
    RowLimits,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
    UsedRouter,
    WantedRouter,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


class StoreCounts(NamedTuple):
    """Counts for the metrics; estimates are enough."""

    tokens: int
    subscriptions: int
    notifications: int


class Replaced(Enum):
    """The result of TRPL."""

    DONE = "done"
    MISSING = "missing"
    TAKEN = "taken"
    """The same key has registered the new device token already."""


class Registered(Enum):
    """The result of TNEW, if the registration is not known yet."""

    DONE = "done"
    TAKEN = "taken"
    """Another connection has made the same registration, or one with this id, just now."""
    QUOTA = "quota"
    """The device token has too many registrations that nobody has verified."""


class QueueFacts(NamedTuple):
    """The facts of the store that SNEW needs."""

    token: TokenRecord | None
    existing: SubscriptionRecord | None
    """The subscription to the queue, of any token."""
    other_routers: int
    """As `other_routers_of`."""


class TokenStore(Protocol):
    """Device tokens. One device token may have several registrations until one of them is activated."""

    async def token(self, token_id: bytes) -> TokenRecord | None: ...

    async def register(self, token: TokenRecord, since: int, most: int) -> TokenRecord | Registered:
        """Add a token, unless its device token has `most` unverified registrations since a time.

        Returns the registration that this key has made before, if there is one. Raises StoreFull at a limit.
        """

    async def remove_unverified(self, before: int) -> int:
        """Remove REGISTERED and CONFIRMED tokens without subscriptions that were registered before a time.

        Returns how many. This need not be atomic.
        """

    async def unverified_registrations(self, device_token: DeviceToken, since: int) -> int:
        """Count the REGISTERED and CONFIRMED registrations of the device token that were made since a time.

        Older ones without subscriptions are removed: nobody used their code.
        """

    async def note_use(self, token_id: bytes, day: int) -> None:
        """Set `updated_at` if it differs."""

    async def register_again(self, token_id: bytes, registered_at: int) -> bool:
        """Change NEW, INVALID or EXPIRED to REGISTERED. Returns False if the token is gone."""

    async def confirm_token(self, token_id: bytes) -> bool:
        """Set status CONFIRMED unless it is CONFIRMED or ACTIVE. Returns whether it changed."""

    async def activate_token(self, token_id: bytes, code: bytes) -> list[NotifierQueue] | None:
        """Set status ACTIVE, and remove every other registration of the device token with all that belongs to it.

        Returns the queues of the removed ones. Returns None, and changes nothing, if the token is gone, has another
        code, or is neither REGISTERED nor CONFIRMED nor ACTIVE. Pending notifications of rivals fail as
        `token_removed`.
        """

    async def invalidate_token(self, token_id: bytes, device_token: DeviceToken, status: TokenStatus) -> bool:
        """Set the status if the token still has this device token. Returns whether it changed.

        Its pending notifications fail as `token_invalid`.
        """

    async def replace_token(
        self, token_id: bytes, device_token: DeviceToken, code: bytes, registered_at: int
    ) -> Replaced:
        """Set device token, code and status REGISTERED. Everything else of the token stays."""

    async def set_cron(self, token_id: bytes, minutes: int, at: int) -> bool:
        """Set the period of periodic pushes, which begins now (`at`). Returns False if the token is gone."""

    async def delete_token(self, token_id: bytes) -> list[NotifierQueue] | None:
        """Delete the token and its subscriptions. Returns their queues, or None if the token does not exist.

        Pending notifications fail as `token_removed`.
        """

    def cron_due(self, now: int, page: int = 1000) -> AsyncIterator[Sequence[TokenRecord]]:
        """Yield ACTIVE tokens whose periodic push is due.

        It is due one period after the latest of these: the period was set, a periodic push was sent, a message was
        received, also if its subscription was deleted since. While a message waits to be pushed, it is not due. If the
        reference set the period, the time of that is not known, and counts as long ago.
        """

    async def cron_sent(self, token_ids: Sequence[bytes], at: int) -> None:
        """Let the tokens' periods begin now, because a push was sent."""


class WantedPage(NamedTuple):
    """Says which page of an SMP router's queues to read."""

    after: bytes | None
    """The cursor of the page before, None for the first page."""
    limit: int
    with_associated: bool
    """Whether queues that are associated with a service are wanted too."""
    first: Sequence[bytes] = ()
    """Notifier ids for the first page, in a store that knows `recently_active` queues. The same for all pages."""


class SubscriptionPage(NamedTuple):
    """A page of an SMP router's queues, to be subscribed one by one."""

    queues: tuple[tuple[bytes, bytes], ...]
    """Notifier ids and the DER of their keys, in the order of the cursor."""
    cursor: bytes | None
    """The start of the next page, None after the last one."""


class SubscriptionStore(Protocol):
    """Subscriptions to queues, and SMP routers with our service ids.

    An SMP router is its key hash. Clients may name different hosts and ports of it; a subscription keeps the address
    that its owner named, for pushes. Everywhere else a given router means all its addresses.
    """

    async def subscription(self, subscription_id: bytes) -> tuple[SubscriptionRecord, TokenRecord] | None: ...

    async def subscription_of(self, queue: NotifierQueue) -> SubscriptionRecord | None: ...

    async def queue_facts(self, token_id: bytes, queue: NotifierQueue) -> QueueFacts:
        """Return what SNEW must know: `token`, `subscription_of` and `other_routers_of` in one step."""

    async def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        """Add a subscription. Returns False if the queue or the id is taken, or the token is gone.

        Raises StoreFull at a limit.
        """

    async def delete_subscription(self, subscription_id: bytes) -> bool:
        """Delete it. Returns whether it existed. Its pending notification fails as `subscription_removed`."""

    async def other_routers_of(self, token_id: bytes, router: RouterLocation) -> int:
        """Count the other addresses of SMP routers where the token has queues."""

    async def new_queues_of(self, token_id: bytes) -> list[tuple[NotifierQueue, bytes]]:
        """Return the token's queues with status NEW, and the DER of their keys."""

    async def set_statuses(
        self, router: RouterLocation, statuses: Sequence[tuple[bytes, SubscriptionStatus]]
    ) -> int:
        """Set statuses by notifier id, without service. Returns how many changed."""

    async def subscribed(
        self, router: RouterLocation, notifier_ids: Sequence[bytes], service_id: bytes | None
    ) -> int:
        """Set status ACTIVE. With a service id, associate the queues with it and note it as ours at this router."""

    async def disconnected(self, router: RouterLocation) -> int:
        """Change ACTIVE and PENDING queues without service to INACTIVE. Returns how many.

        This need not be atomic, because the router subscribes to nothing there meanwhile.
        """

    async def forget_service(self, router: RouterLocation) -> int:
        """Forget our void service there. Its queues become INACTIVE, to be subscribed one by one.

        Queues in a final state (END, DELETED, AUTH, ERR) stay so. This need not be atomic, as `disconnected`.
        """

    async def service_credentials(self, router: RouterLocation) -> Credentials | None:
        """Return the certificate of our service at this router, if it has one of its own."""

    async def set_service_credentials(self, router: RouterLocation, credentials: Credentials | None) -> None:
        """Set it, if the router has queues. It is kept when the service is forgotten: the next one shows it again."""

    async def used_routers(self) -> list[UsedRouter]: ...

    async def used_router(self, router: RouterLocation) -> UsedRouter | None: ...

    async def wanted_routers(self, among: Sequence[RouterLocation] | None = None) -> list[WantedRouter]:
        """Return the needed ones of `used_routers`, or of these, without counting: a start waits for it."""

    async def associations(self, router: RouterLocation) -> Associations: ...

    async def recently_active(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Return queues that had a notification last, newest first: key hash of the router, notifier id.

        For stores whose queues are not all subscribed within moments of a start. Others return nothing.
        """

    async def queues_to_subscribe(self, router: RouterLocation, page: WantedPage) -> SubscriptionPage:
        """Return NEW, PENDING, ACTIVE, INACTIVE and SERVICE queues in a stable order, and mark them PENDING."""


class DirectStore(Protocol):
    """Queues of direct notifications: their SMP routers send everything through one subscription.

    They are subscriptions without a key, always associated with our service.
    """

    async def associate(self, token_id: bytes, queue: NotifierQueue, now: int) -> Associated:
        """Associate a queue with a token. Raises StoreFull at a limit, unless the queue need not be added."""

    async def dissociate(self, token_id: bytes, queue: NotifierQueue, until: int | None) -> bool:
        """Remove a queue as its owner asked. This token cannot associate it again before `until`, when today's packets
        expired. None: it can be, because its owner has ended so many queues that the store marks no more.

        Returns False, and changes nothing, if the queue belongs to another token. The queue need not exist, because
        packets may arrive in any order.
        """

    async def note_deleted(self, router: RouterLocation, notifier_ids: Sequence[bytes], at: int) -> int:
        """Note that the SMP router reported queues as deleted, which may be false. Returns how many are direct."""

    async def note_alive(self, router: RouterLocation, notifier_ids: Sequence[bytes]) -> int:
        """Note that the SMP router sent notifications of queues it had reported as deleted. Returns how many."""

    async def remove_deleted(self, before: int) -> list[NotifierQueue]:
        """Remove queues that were noted as deleted before a time, and not as alive since.

        Pending notifications fail as `subscription_removed`.
        """

    async def forget_ended(self, now: int) -> int:
        """Forget ended queues whose packets have all expired, so that none can bring them back. Returns how many."""

    async def direct_keys(self) -> bytes | None:
        """Return the private keys for direct notifications, as given to `set_direct_keys`."""

    async def set_direct_keys(self, keys: bytes, known: bytes | None) -> bool:
        """Set them if `known` are still stored. Returns whether they were: another process may have been first."""


class NotificationStore(Protocol):
    """The last notifications of each token, and which of them are pending."""

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[ReceivedNotification],
        before_commit: BeforeCommit | None = None,
    ) -> Results:
        """Store notifications and return one result for each, in order. A newer one replaces its queue's older one.

        Those of a token that waits for its code (after TRPL, or TNEW again) are stored too, and pushed after TVFY.
        The event log uses `before_commit`.
        """

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[DuePush]:
        """Return due pushes of those tokens that are ACTIVE and have pending notifications."""

    async def settle(
        self,
        settled: Sequence[SettledNotification],
        before_commit: Callable[[Sequence[SettledNotification]], None] | None = None,
    ) -> None:
        """Settle each notification that is still its queue's last one.

        `before_commit` gets those when nothing is on disk yet. The event log uses it.
        """

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        """Return tokens with pending notifications in a fixed order, behind `after`. A starting router pushes them.

        Tokens whose first pending notification came after the first page may be missing.
        """

    async def expire_pending(self, before: float) -> int:
        """Fail pending notifications received before a time as `expired`. Returns how many."""

    async def accounting(self) -> Accounting: ...

    def report_settled_to(
        self, report: Callable[[Sequence[SettledNotification]], None], *, logged: bool = True
    ) -> None:
        """Call `report` from now on with notifications that the store settles, before that is on disk.

        The store settles pending notifications when their token or subscription is removed, when their token becomes
        invalid, and when they are too old.

        If no report is `logged`, nothing depends on the order of reports and commits (decision 0012): the store may
        call `before_commit` after the commit, which saves a database two round trips.
        """


class NtfStore(TokenStore, SubscriptionStore, DirectStore, NotificationStore, Protocol):
    """The whole store."""

    async def counts(self) -> StoreCounts: ...

    async def limit_to(self, limits: RowLimits) -> None:
        """Take no more rows than these from now on. What is there stays, also if it is more."""

    async def check(self) -> None:
        """Raises `StoreError` if the store cannot be used now."""

    async def lost(self) -> StoreError:
        """Return when the store has failed for good: the reason. The process should end."""

    async def maintain(self) -> None:
        """Keep files from growing without limit. Call it about every minute. Raises `StoreError`."""

    async def close(self) -> None:
        """Stop gracefully. Raises `StoreError` if that fails; changes of methods that returned are safe."""


class NtfTotals(NamedTuple):
    tokens: int
    subscriptions: int
    services: int
    notifications: int

    def __str__(self) -> str:
        return (
            f"{self.tokens} tokens, {self.subscriptions} subscriptions, {self.services} services, "
            f"{self.notifications} notifications"
        )


class KeptLast(NamedTuple):
    """The last notification of a subscription."""

    token_id: bytes
    subscription_id: bytes
    received_at: float
    nonce: bytes
    sealed_meta: bytes
    pending: bool


class WholeNtfStore(Protocol):
    """A store in memory that is read and written as a whole. It must not change while an iterator is in use."""

    def all_tokens(self) -> Iterator[TokenRecord]: ...
    def all_subscriptions(self) -> Iterator[SubscriptionRecord]: ...
    def all_services(self) -> Iterator[tuple[RouterLocation, bytes]]: ...
    def all_service_credentials(self) -> Iterator[tuple[RouterLocation, Credentials]]: ...
    def all_notifications(self) -> Iterator[KeptLast]: ...
    def all_totals(self) -> Accounting: ...

    def put_token(self, token: TokenRecord) -> bool: ...
    def put_subscription(self, subscription: SubscriptionRecord) -> bool: ...
    def put_service(self, router: RouterLocation, service_id: bytes) -> None: ...
    def put_service_credentials(self, router: RouterLocation, credentials: Credentials) -> None: ...
    def put_notification(self, last: KeptLast) -> bool: ...

    def put_totals(self, totals: Accounting) -> None:
        """Set all totals but the number of pending notifications, which the store counts."""


def ntf_totals_of(store: WholeNtfStore) -> NtfTotals:
    return NtfTotals(
        sum(1 for _ in store.all_tokens()),
        sum(1 for _ in store.all_subscriptions()),
        sum(1 for _ in store.all_services()),
        sum(1 for _ in store.all_notifications()),
    )
