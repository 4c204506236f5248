"""Moving a whole NTF store from one durable side to another: what is read and written, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tocsin.ntf_router.store.records import Accounting, SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterLocation


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
