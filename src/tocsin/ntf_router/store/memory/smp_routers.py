"""Subscriptions in memory together with their SMP routers, whose counts follow every change of a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.ntf_router.store.memory.subscription_table import BLOCK_ROWS, Subscription, SubscriptionTable
from tocsin.ntf_router.store.records import UsedRouter
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import WANTED
from tocsin.protocol.ntf.pushes import router_text
from tocsin.protocol.ntf.statuses import SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes


@dataclass(slots=True)
class KeptRouter:
    location: RouterLocation
    text: bytes
    """The beginning of its notifications' texts."""
    service_id: bytes | None = None
    associated: int = 0
    combined_hash: int = 0
    """Of the queues that are associated with our service and wanted."""
    individual: int = 0
    """Queues that are wanted, without service."""

    def used(self) -> UsedRouter:
        return UsedRouter(
            self.location,
            self.service_id,
            self.associated,
            ids_hash_bytes(self.combined_hash),
            self.individual,
        )


class SubscribedRouters:
    """SMP routers by number. A router goes with its last subscription, unless we have a service id there, and its

    number is used again: whoever lets others have a turn must ask for it once more.
    """

    def __init__(self) -> None:
        self.table: Final = SubscriptionTable()
        self._routers: Final[list[KeptRouter | None]] = []
        self._free_numbers: Final[list[int]] = []
        self._numbers: Final[dict[RouterLocation, int]] = {}

    def __iter__(self) -> Iterator[KeptRouter]:
        return (router for router in self._routers if router is not None)

    def number(self, location: RouterLocation) -> int | None:
        return self._numbers.get(location)

    def number_or_new(self, location: RouterLocation) -> int:
        number = self._numbers.get(location)
        if number is None:
            if not self._free_numbers:
                self._free_numbers.append(len(self._routers))
                self._routers.append(None)
            number = self._numbers[location] = self._free_numbers.pop()
            self._routers[number] = KeptRouter(location, router_text(location))
        return number

    def router(self, number: int) -> KeptRouter:
        router = self._routers[number]
        assert router is not None
        return router

    def release_if_unused(self, number: int) -> None:
        router = self.router(number)
        if router.service_id is None and not self.table.block_count(number):
            del self._numbers[router.location]
            self._routers[number] = None
            self._free_numbers.append(number)

    def queue(self, row: int) -> NotifierQueue:
        return NotifierQueue(self.router(self.table.router(row)).location, self.table.notifier_id(row))

    def row_of(self, queue: NotifierQueue) -> int | None:
        number = self._numbers.get(queue.router)
        return None if number is None else self.table.find_queue(number, queue.notifier_id)

    def rows(self, number: int, notifier_ids: Sequence[bytes]) -> list[int | None]:
        return [self.table.find_queue(number, notifier_id) for notifier_id in notifier_ids]

    def add(self, subscription: Subscription) -> int:
        row = self.table.add(subscription)
        self._count(row, 1)
        return row

    def remove(self, row: int) -> None:
        number = self.table.router(row)
        self._count(row, -1)
        self.table.remove(row)
        self.release_if_unused(number)

    def set_state(self, row: int, status: SubscriptionStatus, *, associated: bool) -> None:
        self._count(row, -1)
        self.table.set_state(row, status, associated=associated)
        self._count(row, 1)

    def page(
        self, number: int, after: bytes | None, limit: int, *, with_associated: bool, blocks: int
    ) -> tuple[list[int], bytes | None]:
        """Rows that are wanted, from the router's last block to its first, and the cursor behind them.

        At most `limit` rows of at most so many blocks. The cursor is a block's place and how many of its rows are left.
        """
        place, left = self.table.block_count(number), 0
        if after is not None:
            cursor_place, cursor_left = divmod(int.from_bytes(after, "big"), BLOCK_ROWS)
            if cursor_place < place:
                place, left = cursor_place, cursor_left
        found: list[int] = []
        while True:
            if left == 0:
                if place == 0 or blocks == 0:
                    return found, _cursor(place, left)
                place, left, blocks = place - 1, BLOCK_ROWS, blocks - 1
            for row in reversed(self.table.rows_of_block(number, place)):
                index = row % BLOCK_ROWS
                if index >= left:
                    continue
                left = index
                status, associated = self.table.state(row)
                if status in WANTED and (with_associated or not associated) and not self.table.is_direct(row):
                    found.append(row)
                    if len(found) == limit:
                        return found, (place * BLOCK_ROWS + left).to_bytes(
                            5, "big"
                        ) if place or left else None
            left = 0

    def _count(self, row: int, by: int) -> None:
        status, associated = self.table.state(row)
        if status not in WANTED:
            return
        router = self.router(self.table.router(row))
        if associated:
            router.associated += by
            router.combined_hash ^= id_hash(self.table.notifier_id(row))
        else:
            router.individual += by


def _cursor(place: int, left: int) -> bytes | None:
    return (place * BLOCK_ROWS + left).to_bytes(5, "big") if place or left else None
