"""What an NTF router needs of its store.

The store is the truth: the router keeps no copy of a token or subscription, so what an operator changes in the
database is seen by the next command. Every method is atomic, and what it changed is on disk when it returns. Methods
that take a batch cost about as much as those for one. Raises `StoreError` when the store cannot be reached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from tocsin.ntf_router.store.records import (
    Accounting,
    Associated,
    DuePush,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    SettledNotification,
    SubscriptionPage,
    SubscriptionRecord,
    TokenRecord,
    UsedRouter,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


class StoreCounts(NamedTuple):
    """What the metrics show; estimates are enough."""

    tokens: int
    subscriptions: int
    notifications: int


class Replaced(Enum):
    """What became of TRPL."""

    DONE = "done"
    MISSING = "missing"
    TAKEN = "taken"
    """The same key has registered the new device token already."""


class TokenStore(Protocol):
    """Device tokens. Several registrations of one device token live side by side until one of them is activated."""

    async def token(self, token_id: bytes) -> TokenRecord | None: ...

    async def registration(self, device_token: DeviceToken, verify_key: bytes) -> TokenRecord | None: ...

    async def add_token(self, token: TokenRecord) -> bool:
        """False, changing nothing, if the device token is registered with this key or the id is taken."""

    async def note_use(self, token_id: bytes, day: int) -> None:
        """Sets `updated_at` if it differs."""

    async def register_again(self, token_id: bytes, registered_at: int) -> bool:
        """Status REGISTERED if it is NEW, INVALID or EXPIRED; False if the token is gone."""

    async def confirm_token(self, token_id: bytes) -> bool:
        """Status CONFIRMED unless it is CONFIRMED or ACTIVE; whether it changed."""

    async def activate_token(self, token_id: bytes, code: bytes) -> list[NotifierQueue] | None:
        """Status ACTIVE; removes every other registration of the device token with all that belongs to it.

        Returns the queues of those removed; None, changing nothing, if the token is gone, has another code now, or
        is neither REGISTERED nor CONFIRMED nor ACTIVE. Pending notifications of rivals fail as `token_removed`.
        """

    async def invalidate_token(self, token_id: bytes, device_token: DeviceToken, status: TokenStatus) -> bool:
        """Sets the status if the token still has this device token; whether it changed.

        Its pending notifications fail as `token_invalid`.
        """

    async def replace_token(
        self, token_id: bytes, device_token: DeviceToken, code: bytes, registered_at: int
    ) -> Replaced:
        """New device token and code, status REGISTERED; keys, secret, cron, subscriptions and notifications stay."""

    async def set_cron(self, token_id: bytes, minutes: int) -> bool: ...

    async def delete_token(self, token_id: bytes) -> list[NotifierQueue] | None:
        """With its subscriptions, whose queues are returned; None if it does not exist.

        Pending notifications fail as `token_removed`.
        """

    def cron_due(self, now: int, page: int = 1000) -> AsyncIterator[Sequence[TokenRecord]]:
        """ACTIVE tokens whose periodic push is due; one that never had any is."""

    async def cron_sent(self, token_ids: Sequence[bytes], at: int) -> None: ...


class SubscriptionStore(Protocol):
    """Subscriptions to queues, and SMP routers with our service ids there."""

    async def subscription(self, subscription_id: bytes) -> tuple[SubscriptionRecord, TokenRecord] | None: ...

    async def subscription_of(self, queue: NotifierQueue) -> SubscriptionRecord | None: ...

    async def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        """False, changing nothing, if the queue or the id is taken or the token is gone."""

    async def delete_subscription(self, subscription_id: bytes) -> bool:
        """Whether it existed. Its pending notification fails as `subscription_removed`."""

    async def other_routers_of(self, token_id: bytes, router: RouterLocation) -> int:
        """How many different SMP routers besides this one the token's queues are at."""

    async def set_statuses(
        self, router: RouterLocation, statuses: Sequence[tuple[bytes, SubscriptionStatus]]
    ) -> int:
        """Of queues by notifier id, subscribed without service; how many changed."""

    async def subscribed(
        self, router: RouterLocation, notifier_ids: Sequence[bytes], service_id: bytes | None
    ) -> int:
        """ACTIVE, and associated with the service if it is given; then it is remembered as ours at this router."""

    async def disconnected(self, router: RouterLocation) -> int:
        """Queues that are ACTIVE or PENDING without service become INACTIVE; how many.

        Need not be atomic: nobody subscribes at this router meanwhile.
        """

    async def forget_service(self, router: RouterLocation) -> int:
        """Our service there is void: its queues become INACTIVE, to be subscribed one by one.

        Those that are at an end (END, DELETED, AUTH, ERR) stay so. Need not be atomic, as `disconnected`.
        """

    async def used_routers(self) -> list[UsedRouter]: ...

    async def used_router(self, router: RouterLocation) -> UsedRouter | None: ...

    async def queues_to_subscribe(
        self, router: RouterLocation, after: bytes | None, limit: int, *, with_associated: bool
    ) -> SubscriptionPage:
        """NEW, PENDING, ACTIVE, INACTIVE or SERVICE, in an order that does not change; marks them PENDING.

        Queues associated with a service are left out unless there is none.
        """


class DirectStore(Protocol):
    """Queues of direct notifications: their SMP routers send everything through one subscription.

    They are subscriptions without a key, always associated with our service.
    """

    async def associate(self, token_id: bytes, queue: NotifierQueue, now: int) -> Associated: ...

    async def dissociate(self, token_id: bytes, queue: NotifierQueue, until: int) -> bool:
        """Its owner has proved to want it: the queue goes, and cannot be associated again until that time, when no
        packet of today can be opened any more. False, changing nothing, if it is another token's; the id need not be
        known, since packets may come in any order.
        """

    async def note_deleted(self, router: RouterLocation, notifier_ids: Sequence[bytes], at: int) -> int:
        """The SMP router says that these are gone, and may lie; how many of them are direct."""

    async def note_alive(self, router: RouterLocation, notifier_ids: Sequence[bytes]) -> int:
        """The opposite: it has sent notifications of queues that it said were gone; how many."""

    async def remove_deleted(self, before: int) -> list[NotifierQueue]:
        """Those that were noted as deleted before that time, and not as alive since; pending ones fail as
        `subscription_removed`.
        """

    async def direct_keys(self) -> bytes | None:
        """Private keys of this router for direct notifications, as `set_direct_keys` got them."""

    async def set_direct_keys(self, keys: bytes) -> None: ...


class NotificationStore(Protocol):
    """The last notifications of each token, and which of them are not settled."""

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[ReceivedNotification],
        before_commit: Callable[[Sequence[Recorded | NotRecorded]], None] | None = None,
    ) -> list[Recorded | NotRecorded]:
        """One result for each, in order. A queue's newer notification replaces its older one.

        `before_commit` is called with the results when all is decided and nothing is on disk yet: for the event log.
        """

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[DuePush]:
        """For those of the tokens that are ACTIVE and have pending notifications."""

    async def settle(
        self,
        settled: Sequence[SettledNotification],
        before_commit: Callable[[Sequence[SettledNotification]], None] | None = None,
    ) -> None:
        """Ends the pending state of each notification that is still its queue's last one.

        `before_commit` is called with those, when nothing is on disk yet: for the event log.
        """

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        """In a fixed order, behind `after`: what a router that starts has to push.

        Tokens that got something pending since the first page may be missing.
        """

    async def expire_pending(self, before: float) -> int:
        """Pending notifications received before that time fail as `expired`; how many."""

    async def accounting(self) -> Accounting: ...

    def report_settled_to(self, report: Callable[[Sequence[SettledNotification]], None]) -> None:
        """Call `report` from now on with the notifications that the store itself settles.

        It settles pending notifications when their token or subscription goes, when their token is invalid, and when
        they are too old. `report` is called when this is decided and not on disk yet.
        """


class NtfStore(TokenStore, SubscriptionStore, DirectStore, NotificationStore, Protocol):
    """All of it."""

    async def counts(self) -> StoreCounts: ...

    async def check(self) -> None:
        """Raises `StoreError` if the store cannot be used now."""

    async def maintain(self) -> None:
        """To be called every minute or so: keeps files from growing without end. Raises `StoreError`."""

    async def close(self) -> None:
        """A graceful stop. Raises `StoreError` if that fails; what was returned from a method is safe."""


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
    """A store in memory that is read and written as a whole: `stores.memory.ntf_memory_store.NtfMemoryStore`.

    Not to be changed while one of its iterators is in use.
    """

    def all_tokens(self) -> Iterator[TokenRecord]: ...
    def all_subscriptions(self) -> Iterator[SubscriptionRecord]: ...
    def all_services(self) -> Iterator[tuple[RouterLocation, bytes]]: ...
    def all_notifications(self) -> Iterator[KeptLast]: ...
    def all_totals(self) -> Accounting: ...

    def put_token(self, token: TokenRecord) -> bool: ...
    def put_subscription(self, subscription: SubscriptionRecord) -> bool: ...
    def put_service(self, router: RouterLocation, service_id: bytes) -> None: ...
    def put_notification(self, last: KeptLast) -> bool: ...

    def put_totals(self, totals: Accounting) -> None:
        """All but how many are pending, which is counted."""


def ntf_totals_of(store: WholeNtfStore) -> NtfTotals:
    return NtfTotals(
        sum(1 for _ in store.all_tokens()),
        sum(1 for _ in store.all_subscriptions()),
        sum(1 for _ in store.all_services()),
        sum(1 for _ in store.all_notifications()),
    )
