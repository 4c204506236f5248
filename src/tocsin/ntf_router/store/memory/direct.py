"""Queues of direct notifications of an NTF store in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.ntf_router.store.logs.change_log import QueuesAssociated, QueuesEnded, QueuesGone, QueuesRemoved
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.records import SUBSCRIPTION_REMOVED, Associated, end_mark
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue


class MemoryDirect:
    """Implements `DirectStore`, which describes the methods."""

    _tables: NtfTables
    _direct_keys: bytes | None = None

    async def associate(self, token_id: bytes, queue: NotifierQueue, now: int) -> Associated:
        await self._tables.journal.ready()
        tables = self._tables
        token = tables.tokens.get(token_id)
        if token is None or token.record.status.state is not TokenState.ACTIVE:
            return Associated.NO_TOKEN
        row = tables.routers.row_of(queue)
        if row is not None:
            known = tables.routers.table.is_direct(row) and tables.owner(row) is token
            return Associated.KNOWN if known else Associated.TAKEN
        if tables.direct.is_ended(end_mark(token_id, queue.notifier_id), now):
            return Associated.REMOVED
        if not tables.add_direct(token_id, queue):
            return Associated.TAKEN
        tables.journal.direct(QueuesAssociated(token_id, queue.router, (queue.notifier_id,)))
        await tables.journal.commit()
        return Associated.ADDED

    async def dissociate(self, token_id: bytes, queue: NotifierQueue, until: int | None) -> bool:
        await self._tables.journal.ready()
        tables = self._tables
        row = tables.routers.row_of(queue)
        if row is not None:
            if not tables.routers.table.is_direct(row) or tables.owner(row).record.token_id != token_id:
                return False
            tables.remove_subscription(row, SUBSCRIPTION_REMOVED)
            tables.journal.direct(QueuesRemoved((queue.notifier_id,)))
        if until is not None:
            mark = end_mark(token_id, queue.notifier_id)
            tables.direct.end(mark, until)
            tables.journal.direct(QueuesEnded((mark,), until))
        await tables.journal.commit()
        return True

    async def forget_ended(self, now: int) -> int:
        return self._tables.direct.forget(now)

    async def note_deleted(self, router: RouterLocation, notifier_ids: Sequence[bytes], at: int) -> int:
        await self._tables.journal.ready()
        rows = self._tables.direct_rows(router, notifier_ids)
        gone = {
            notifier_id: row
            for notifier_id, row in rows.items()
            if notifier_id not in self._tables.direct.gone
        }
        await self._note_gone(gone, at)
        return len(rows)

    async def note_alive(self, router: RouterLocation, notifier_ids: Sequence[bytes]) -> int:
        await self._tables.journal.ready()
        if not self._tables.direct.gone:
            return 0
        rows = self._tables.direct_rows(router, notifier_ids)
        back = {each: row for each, row in rows.items() if each in self._tables.direct.gone}
        await self._note_gone(back, 0)
        return len(back)

    async def _note_gone(self, rows: dict[bytes, int], at: int) -> None:
        if rows:
            for notifier_id in rows:
                self._tables.set_gone(notifier_id, at)
            self._tables.journal.direct(QueuesGone(tuple(rows), at))
            await self._tables.journal.commit()

    async def remove_deleted(self, before: int) -> list[NotifierQueue]:
        await self._tables.journal.ready()
        tables = self._tables
        due = [notifier_id for notifier_id, at in tables.direct.gone.items() if at < before]
        removed = [queue for each in due if (queue := tables.remove_direct(each)) is not None]
        if removed:
            tables.journal.direct(QueuesRemoved(tuple(queue.notifier_id for queue in removed)))
        await tables.journal.commit()
        return removed

    async def direct_keys(self) -> bytes | None:
        return self._direct_keys

    async def set_direct_keys(self, keys: bytes, known: bytes | None) -> bool:
        if self._direct_keys != known:
            return False
        self._direct_keys = keys
        return True
