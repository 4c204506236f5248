"""An NTF store in memory: tokens, subscriptions and notifications, with a journal that makes changes durable.

It can also be read and written as a whole, for transfers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tocsin.crypto.credentials import Credentials
from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import KeptLast, StoreCounts
from tocsin.ntf_router.store.memory.direct import MemoryDirect
from tocsin.ntf_router.store.memory.notifications import MemoryNotifications
from tocsin.ntf_router.store.memory.subscriptions import MemorySubscriptions
from tocsin.ntf_router.store.memory.tables import NtfJournal, NtfTables
from tocsin.ntf_router.store.memory.token_table import KeptNotification
from tocsin.ntf_router.store.memory.tokens import MemoryTokens
from tocsin.ntf_router.store.records import Accounting, RowLimits, SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterLocation


class MemoryWhole:
    """Implements `WholeNtfStore`, which describes the methods. These methods bypass the journal."""

    _tables: NtfTables

    def all_tokens(self) -> Iterator[TokenRecord]:
        for token in self._tables.tokens:
            yield token.record

    def all_subscriptions(self) -> Iterator[SubscriptionRecord]:
        for row in self._tables.routers.table.rows():
            yield self._tables.subscription_record(row)

    def all_services(self) -> Iterator[tuple[RouterLocation, bytes]]:
        for router in self._tables.routers:
            if router.service_id is not None:
                yield self._tables.routers.address(router.addresses[0]).location, router.service_id

    def all_service_credentials(self) -> Iterator[tuple[RouterLocation, Credentials]]:
        for router in self._tables.routers:
            if router.credentials is not None:
                yield self._tables.routers.address(router.addresses[0]).location, router.credentials

    def all_notifications(self) -> Iterator[KeptLast]:
        for token in self._tables.tokens:
            for row, last in (token.last or {}).items():
                subscription_id = self._tables.routers.table.subscription_id(row)
                yield KeptLast(
                    token.record.token_id,
                    subscription_id,
                    last.received_at,
                    last.nonce,
                    last.sealed_meta,
                    last.pending,
                )

    def all_totals(self) -> Accounting:
        return self._tables.notifications.accounting()

    def put_token(self, token: TokenRecord) -> bool:
        return self._tables.tokens.add(token) is not None

    def put_subscription(self, subscription: SubscriptionRecord) -> bool:
        return self._tables.add_subscription(subscription)

    def put_service(self, router: RouterLocation, service_id: bytes) -> None:
        self._tables.routers.set_service(router, service_id)

    def put_service_credentials(self, router: RouterLocation, credentials: Credentials) -> None:
        if (known := self._tables.routers.router(router)) is not None:
            known.credentials = credentials

    def put_notification(self, last: KeptLast) -> bool:
        row = self._tables.routers.table.find(last.subscription_id)
        if row is None or self._tables.owner(row).record.token_id != last.token_id:
            return False
        notifier_id = self._tables.routers.table.notifier_id(row)
        kept = KeptNotification.of(
            notifier_id, last.received_at, last.nonce, last.sealed_meta, pending=last.pending
        )
        self._tables.notifications.put(self._tables.owner(row), row, kept)
        return True

    def put_totals(self, totals: Accounting) -> None:
        notifications = self._tables.notifications
        notifications.received = totals.received
        notifications.accepted = totals.accepted
        notifications.superseded = totals.superseded
        notifications.failed.clear()
        notifications.failed.update(totals.failed)


class NtfMemoryStore(MemoryTokens, MemorySubscriptions, MemoryDirect, MemoryNotifications, MemoryWhole):
    """Implements `NtfStore`, which describes the methods, and `WholeNtfStore`."""

    def __init__(self, journal: NtfJournal | None = None) -> None:
        self._tables = NtfTables(journal)

    @property
    def tables(self) -> NtfTables:
        """The tables, for code that reads or writes the whole store."""
        return self._tables

    async def counts(self) -> StoreCounts:
        tables = self._tables
        return StoreCounts(len(tables.tokens), len(tables.routers.table), tables.notifications.count)

    async def limit_to(self, limits: RowLimits) -> None:
        self._tables.limits = limits

    async def check(self) -> None:
        await self._tables.journal.ready()
        await self._tables.journal.commit()

    async def lost(self) -> StoreError:
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never

    async def maintain(self) -> None:
        pass

    async def close(self) -> None:
        await self._tables.journal.commit()
