"""The statistics of an SMP router, with what is in its store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from tocsin.operate.statistics_files import KeptStatistics, statistics_path
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import SmpStatistics, SmpStoreCounts
from tocsin.smp_router.statistics.statistics_lines import parse_statistics
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

DAILY_LOG: Final = "smp-server-stats.daily.log"


class StatisticsFiles(KeptStatistics):
    """Of one router."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, store: SmpMemoryStore) -> None:
        super().__init__(
            _StatisticsWithStore(counters, store),
            statistics_path(settings.store, settings.statistics_file),
            settings.store / DAILY_LOG if settings.log_stats and settings.store else None,
        )


class _StatisticsWithStore:
    def __init__(self, counters: SmpCounters, store: SmpMemoryStore) -> None:
        self._statistics: Final = SmpStatistics(counters, since=datetime.now(UTC))
        self._store: Final = store

    def restore(self, text: str, written: datetime) -> None:
        self._statistics.restore(parse_statistics(text), written)

    def lines(self, now: datetime) -> Iterator[str]:
        return self._statistics.record(self._counts(), now).lines()

    def end_day(self, now: datetime) -> str:
        return self._statistics.end_day(self._counts(), now)

    def _counts(self) -> SmpStoreCounts:
        store = self._store
        messages = sum(store.message_count(queue) for queue in store.queues_with_messages())
        return SmpStoreCounts(store.queue_count(), messages, store.notifier_count())
