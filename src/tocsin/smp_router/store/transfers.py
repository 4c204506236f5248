"""Transfers of a whole SMP store from one durable side to another: what is read and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from tocsin.smp_router.store.direct import SmpDirectStore
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord, StoredMessage, StoredNotification


class StoreTotals(NamedTuple):
    services: int
    queues: int
    messages: int
    """Markers included."""
    notifications: int
    direct: int = 0
    """Records of direct notifications: NTF routers, minimum priorities and packets."""

    def __str__(self) -> str:
        direct = f", {self.direct} records of direct notifications" if self.direct else ""
        return (
            f"{self.services} services, {self.queues} queues, {self.messages} messages, "
            f"{self.notifications} notifications{direct}"
        )


class WholeStore(Protocol):
    """A store in memory that can be read as a whole."""

    @property
    def direct(self) -> SmpDirectStore: ...

    def services(self) -> Sequence[ServiceRecord]: ...
    def queues(self) -> Iterator[QueueRecord]: ...
    def queue_count(self) -> int: ...
    def queues_with_messages(self) -> Iterator[bytes]: ...
    def messages(self, recipient_id: bytes) -> Sequence[StoredMessage]: ...
    def notifiers_with_notifications(self) -> Sequence[bytes]: ...
    def notifications(self, notifier_id: bytes) -> Sequence[StoredNotification]: ...


def totals_of(store: WholeStore) -> StoreTotals:
    direct = store.direct
    return StoreTotals(
        len(store.services()),
        store.queue_count(),
        sum(len(store.messages(queue)) for queue in store.queues_with_messages()),
        sum(len(store.notifications(notifier)) for notifier in store.notifiers_with_notifications()),
        len(direct.ntf_routers()) + len(direct.minimum_priorities()) + direct.packet_count(),
    )
