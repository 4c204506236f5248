"""Last notifications of an NTF store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.memory.token_table import KeptNotification
from tocsin.ntf_router.store.records import (
    EXPIRED,
    Accounting,
    BeforeCommit,
    DuePush,
    LastNotification,
    NotRecorded,
    PendingNotification,
    ReceivedNotification,
    Recorded,
    Results,
    SettledNotification,
    repeated_in_order,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import VERIFIABLE
from tocsin.protocol.ntf.statuses import TokenState

PAUSE_AFTER: Final = 256
"""Tokens to check before other tasks get a turn."""
_ACTIVE: Final = TokenState.ACTIVE


class MemoryNotifications:
    """Implements `NotificationStore`, which describes the methods."""

    _tables: NtfTables

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[ReceivedNotification],
        before_commit: BeforeCommit | None = None,
    ) -> Results:
        await self._tables.journal.ready()
        known = self._tables.routers.router(router)
        number = None if known is None else known.number
        repeated = repeated_in_order(received, lambda notifier_id: self._last_nonce(number, notifier_id))
        results = [
            NotRecorded.DUPLICATE if place in repeated else self._add_notification(number, each)
            for place, each in enumerate(received)
        ]
        if before_commit is not None:
            before_commit(results)
        await self._tables.journal.commit()
        return results

    def _last_nonce(self, number: int | None, notifier_id: bytes) -> bytes | None:
        tables = self._tables
        row = None if number is None else tables.routers.table.find_queue(number, notifier_id)
        token = None if row is None else tables.owner(row)
        if row is None or token is None or token.last is None or token.record.status.state not in VERIFIABLE:
            return None
        last = token.last.get(row)
        return None if last is None else last.nonce

    def _add_notification(self, number: int | None, received: ReceivedNotification) -> Recorded | NotRecorded:
        tables = self._tables
        notifier_id, nonce, sealed_meta, received_at, _ = received
        row = None if number is None else tables.routers.table.find_queue(number, notifier_id)
        if row is None:
            return NotRecorded.UNKNOWN_QUEUE
        token = tables.owner(row)
        record = token.record
        if record.status.state not in VERIFIABLE:
            return NotRecorded.UNKNOWN_QUEUE
        last = token.last.get(row) if token.last is not None else None
        if last is not None and last.nonce == nonce:
            return NotRecorded.DUPLICATE
        new = KeptNotification.of(notifier_id, received_at, nonce, sealed_meta, pending=True)
        superseded = tables.notifications.receive(token, row, new)
        tables.journal.came(tables.routers.table.subscription_id(row), received_at, nonce, sealed_meta)
        provider = record.device_token.provider
        if superseded is None:
            return Recorded(record.token_id, provider, None)
        return Recorded(record.token_id, provider, superseded.nonce, superseded.received_at)

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[DuePush]:
        due = []
        for token_id in token_ids:
            token = self._tables.tokens.get(token_id)
            if (
                token is None
                or token.record.status.state is not _ACTIVE
                or not self._tables.notifications.has_pending(token_id)
            ):
                continue
            notifications = [self._last(row, last) for row, last in (token.last or {}).items()]
            due.append(DuePush(token.record, tuple(notifications)))
        return due

    def _last(self, row: int, last: KeptNotification) -> LastNotification:
        routers = self._tables.routers
        text = routers.address(routers.table.address(row)).text + last.item
        if not last.pending:
            return LastNotification(last.received_at, last.nonce, text)
        return PendingNotification(
            last.received_at, last.nonce, text, routers.table.subscription_id(row), routers.queue(row)
        )

    async def settle(
        self,
        settled: Sequence[SettledNotification],
        before_commit: Callable[[Sequence[SettledNotification]], None] | None = None,
    ) -> None:
        await self._tables.journal.ready()
        ended = [each for each in settled if self._settle(each)]
        if before_commit is not None and ended:
            before_commit(ended)
        await self._tables.journal.commit()

    def _settle(self, settled: SettledNotification) -> bool:
        row = self._tables.routers.table.find(settled.subscription_id)
        token = self._tables.tokens.get(settled.token_id)
        if row is None or token is None or token.last is None:
            return False
        last = token.last.get(row)
        if last is None or last.nonce != settled.nonce:
            return False
        ended = self._tables.end_pending(token, row, settled.outcome)
        self._tables.notifications.prune(token)
        return ended

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        return self._tables.notifications.page_with_pending(after, limit)

    async def expire_pending(self, before: float) -> int:
        await self._tables.journal.ready()
        expired = 0
        for count, token_id in enumerate(self._tables.notifications.with_pending(), start=1):
            token = self._tables.tokens.get(token_id)
            if token is not None:
                expired += self._tables.end_all_pending(token, EXPIRED, before)
            if count % PAUSE_AFTER == 0:
                await asyncio.sleep(0)
        await self._tables.journal.commit()
        return expired

    def report_settled_to(
        self, report: Callable[[Sequence[SettledNotification]], None], *, logged: bool = True
    ) -> None:
        self._tables.report_settled = report

    async def accounting(self) -> Accounting:
        return self._tables.notifications.accounting()
