"""Tokens, subscriptions and last notifications in memory, with a journal that makes changes durable.

Each method changes memory without waiting, so that it is atomic, and then awaits the journal. The few that look at all
rows give others a turn in between; they change each row at once.
"""

from __future__ import annotations

from tocsin.stores.memory.ntf_journal import NtfJournal
from tocsin.stores.memory.ntf_memory_direct import MemoryDirect
from tocsin.stores.memory.ntf_memory_notifications import MemoryNotifications
from tocsin.stores.memory.ntf_memory_subscriptions import MemorySubscriptions
from tocsin.stores.memory.ntf_memory_tokens import MemoryTokens
from tocsin.stores.memory.ntf_memory_whole import MemoryWhole
from tocsin.stores.memory.ntf_tables import NtfTables
from tocsin.stores.ntf_store import StoreCounts


class NtfMemoryStore(MemoryTokens, MemorySubscriptions, MemoryDirect, MemoryNotifications, MemoryWhole):
    """Implements `NtfStore` of `tocsin.stores.ntf_store`, where the methods are described, and `WholeNtfStore`."""

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
