"""Subscriptions and SMP routers of an NTF store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.store.interface import QueueFacts, SubscriptionPage, WantedPage
from tocsin.ntf_router.store.logs.store_log import ServiceSet, SubscriptionAdded, SubscriptionRemoved
from tocsin.ntf_router.store.memory.subscription_table import KeptRouter
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.records import (
    SUBSCRIPTION_REMOVED,
    Associations,
    SubscriptionRecord,
    TokenRecord,
    UsedRouter,
    WantedRouter,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import LIVE, WANTED
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, TokenState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

PAUSE_AFTER: Final = 64
"""Blocks of rows to read before other tasks get a turn."""
SEARCHED_BLOCKS: Final = 64
"""Blocks of rows that are searched for a queue of an active token."""


class MemorySubscriptions:
    """Implements `SubscriptionStore`, which describes the methods."""

    _tables: NtfTables
    _decoy_id: bytes = b""

    async def subscription(self, subscription_id: bytes) -> tuple[SubscriptionRecord, TokenRecord] | None:
        await self._tables.journal.ready()
        row = self._tables.routers.table.find(subscription_id)
        if row is not None:
            self._decoy_id = subscription_id
            return self._tables.subscription_record(row), self._tables.owner(row).record
        # Read another one, so that the time does not tell whether a subscription exists.
        decoy = self._tables.routers.table.find(self._decoy_id)
        if decoy is not None:
            self._tables.subscription_record(decoy)
        return None

    async def subscription_of(self, queue: NotifierQueue) -> SubscriptionRecord | None:
        await self._tables.journal.ready()
        row = self._tables.routers.row_of(queue)
        return None if row is None else self._tables.subscription_record(row)

    async def queue_facts(self, token_id: bytes, queue: NotifierQueue) -> QueueFacts:
        await self._tables.journal.ready()
        token = self._tables.tokens.get(token_id)
        others = await self.other_routers_of(token_id, queue.router)
        return QueueFacts(None if token is None else token.record, await self.subscription_of(queue), others)

    async def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        await self._tables.journal.ready()
        if not self._tables.add_subscription(subscription):
            return False
        self._tables.journal.append(SubscriptionAdded(subscription))
        await self._tables.journal.commit()
        return True

    async def delete_subscription(self, subscription_id: bytes) -> bool:
        await self._tables.journal.ready()
        row = self._tables.routers.table.find(subscription_id)
        if row is None:
            return False
        self._tables.remove_subscription(row, SUBSCRIPTION_REMOVED)
        self._tables.journal.append(SubscriptionRemoved(subscription_id))
        await self._tables.journal.commit()
        return True

    async def other_routers_of(self, token_id: bytes, router: RouterLocation) -> int:
        token = self._tables.tokens.get(token_id)
        numbers = set() if token is None else self._tables.routers.table.addresses_of(token.rows)
        return len(numbers - {self._tables.routers.number(router)})

    async def new_queues_of(self, token_id: bytes) -> list[tuple[NotifierQueue, bytes]]:
        token = self._tables.tokens.get(token_id)
        routers = self._tables.routers
        return [
            (routers.queue(row), routers.table.key(row))
            for row in (() if token is None else token.rows)
            if routers.table.state(row)[0] is SubscriptionState.NEW
        ]

    async def set_statuses(
        self, router: RouterLocation, statuses: Sequence[tuple[bytes, SubscriptionStatus]]
    ) -> int:
        await self._tables.journal.ready()
        known = self._tables.routers.router(router)
        if known is None:
            return 0
        changed = 0
        for notifier_id, status in statuses:
            row = self._tables.routers.table.find_queue(known.number, notifier_id)
            if row is not None and not self._tables.routers.table.is_direct(row):
                changed += self._tables.change_state(row, status, associated=False)
        await self._tables.journal.commit()
        return changed

    async def subscribed(
        self, router: RouterLocation, notifier_ids: Sequence[bytes], service_id: bytes | None
    ) -> int:
        await self._tables.journal.ready()
        known = self._tables.routers.router(router)
        if known is None:
            return 0
        if service_id is not None:
            self._set_service(known, service_id)
        changed = 0
        for notifier_id in notifier_ids:
            row = self._tables.routers.table.find_queue(known.number, notifier_id)
            if row is not None and not self._tables.routers.table.is_direct(row):
                associated = service_id is not None
                changed += self._tables.change_state(row, SubscriptionState.ACTIVE, associated=associated)
        await self._tables.journal.commit()
        return changed

    async def disconnected(self, router: RouterLocation) -> int:
        changed = 0
        async for row in self._rows_of(router):
            status, associated = self._tables.routers.table.state(row)
            if not associated and status in LIVE:
                # Not journalled: no queue is subscribed after a restart.
                self._tables.routers.set_state(row, SubscriptionState.INACTIVE, associated=False)
                changed += 1
        return changed

    async def forget_service(self, router: RouterLocation) -> int:
        await self._tables.journal.ready()
        known = self._tables.routers.router(router)
        if known is None:
            return 0
        self._set_service(known, None)
        changed = 0
        async for row in self._rows_of(router):
            status, associated = self._tables.routers.table.state(row)
            if associated and not self._tables.routers.table.is_direct(row):
                status = SubscriptionState.INACTIVE if status in WANTED else status
                changed += self._tables.change_state(row, status, associated=False)
        if self._tables.routers.router(router) is known:
            for number in list(known.addresses):
                self._tables.routers.release_if_unused(number)
        await self._tables.journal.commit()
        return changed

    async def service_credentials(self, router: RouterLocation) -> Credentials | None:
        known = self._tables.routers.router(router)
        return None if known is None else known.credentials

    async def set_service_credentials(self, router: RouterLocation, credentials: Credentials | None) -> None:
        known = self._tables.routers.router(router)
        if known is not None:
            known.credentials = credentials

    async def used_routers(self) -> list[UsedRouter]:
        found = [self._used(router) for router in self._tables.routers]
        return [used for used in found if used.associated_count or used.individual_count]

    async def used_router(self, router: RouterLocation) -> UsedRouter | None:
        known = self._tables.routers.router(router)
        return None if known is None else self._used(known)

    def _used(self, router: KeptRouter) -> UsedRouter:
        used = self._tables.routers.used(router)
        if used.untried and not self._has_active_token(router):
            return replace(used, needed=False)
        return used

    def _has_active_token(self, router: KeptRouter) -> bool:
        """Whether a queue there belongs to an active token. If there are many queues, this counts as yes."""
        table = self._tables.routers.table
        if sum(table.block_count(number) for number in router.addresses) > SEARCHED_BLOCKS:
            return True
        return any(
            table.state(row)[0] in WANTED and self._tables.owner(row).record.status.state is TokenState.ACTIVE
            for number in router.addresses
            for place in range(table.block_count(number))
            for row in table.rows_of_block(number, place)
        )

    async def wanted_routers(self, among: Sequence[RouterLocation] | None = None) -> list[WantedRouter]:
        wanted = None if among is None else {each.key_hash for each in among}
        return [
            WantedRouter(each.location, each.other_addresses, each.untried)
            for each in await self.used_routers()
            if each.needed and (wanted is None or each.location.key_hash in wanted)
        ]

    async def associations(self, router: RouterLocation) -> Associations:
        used = await self.used_router(router)
        return (
            Associations(None, False)
            if used is None
            else Associations(used.service_id, used.associated_count > 0)
        )

    async def recently_active(self, limit: int) -> list[tuple[bytes, bytes]]:
        return []

    async def queues_to_subscribe(self, router: RouterLocation, page: WantedPage) -> SubscriptionPage:
        queues: list[tuple[bytes, bytes]] = []
        table, cursor = self._tables.routers.table, page.after
        while True:
            known = self._tables.routers.router(router)
            if known is None:
                return SubscriptionPage(tuple(queues), None)
            left = page.limit - len(queues)
            rows, cursor = self._tables.routers.page(
                known, cursor, left, with_associated=page.with_associated, blocks=PAUSE_AFTER
            )
            for row in rows:
                _, associated = table.state(row)
                self._tables.routers.set_state(row, SubscriptionState.PENDING, associated=associated)
                queues.append((table.notifier_id(row), table.key(row)))
            if cursor is None or len(queues) >= page.limit:
                return SubscriptionPage(tuple(queues), cursor)
            await asyncio.sleep(0)

    async def _rows_of(self, router: RouterLocation) -> AsyncIterator[int]:
        """Yield rows from the last block to the first, so that rows may be removed meanwhile. Other tasks get turns."""
        routers = self._tables.routers
        known, table, looked_at = routers.router(router), routers.table, 0
        for number in [] if known is None else list(known.addresses):
            place = table.block_count(number)
            while place:
                place = min(place, table.block_count(number)) - 1
                if place < 0:
                    break
                for row in table.rows_of_block(number, place):
                    yield row
                looked_at += 1
                if looked_at % PAUSE_AFTER == 0:
                    await asyncio.sleep(0)
                    if known is None or routers.router(router) is not known:
                        return
                    if number not in known.addresses:
                        break

    def _set_service(self, router: KeptRouter, service_id: bytes | None) -> None:
        if router.service_id != service_id:
            router.service_id = service_id
            location = self._tables.routers.address(router.addresses[0]).location
            self._tables.journal.append(ServiceSet(location, service_id))
