"""Tokens, subscriptions and last notifications in memory, with a journal that makes changes durable.

Each method changes memory without waiting, so that it is atomic, and then awaits the journal. The few that look at all
rows give others a turn in between; they change each row at once.
"""

from __future__ import annotations

from tocsin.ntf_router.store.interface import StoreCounts
from tocsin.ntf_router.store.memory.direct import MemoryDirect
from tocsin.ntf_router.store.memory.journal import NtfJournal
from tocsin.ntf_router.store.memory.notifications import MemoryNotifications
from tocsin.ntf_router.store.memory.subscriptions import MemorySubscriptions
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.memory.tokens import MemoryTokens
from tocsin.ntf_router.store.memory.whole_store import MemoryWhole


class NtfMemoryStore(MemoryTokens, MemorySubscriptions, MemoryDirect, MemoryNotifications, MemoryWhole):
    """Implements `NtfStore`, which describes the methods, and `WholeNtfStore`."""

    def __init__(self, journal: NtfJournal | None = None) -> None:
        self._tables = NtfTables(journal)

    @property
    def tables(self) -> NtfTables:
        """For whoever reads or writes the store as a whole."""
        return self._tables

    async def counts(self) -> StoreCounts:
        tables = self._tables
        return StoreCounts(len(tables.tokens), len(tables.routers.table), tables.notifications.count)

    async def check(self) -> None:
        await self._tables.journal.commit()

    async def maintain(self) -> None:
        pass

    async def close(self) -> None:
        await self._tables.journal.commit()
