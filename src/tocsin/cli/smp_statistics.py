"""The statistics of an SMP router over its restarts: the statistics file, and one line for each day."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tocsin.config.smp_settings import SmpSettings
from tocsin.errors import StoreError
from tocsin.observability.smp_counters import SmpCounters
from tocsin.observability.smp_statistics import SmpStatistics, StoreCounts, seconds_to_midnight
from tocsin.observability.statistics_lines import parse_statistics
from tocsin.stores.memory.log_files import AppendOnlyFile, replace_lines
from tocsin.stores.memory.smp_memory_store import SmpMemoryStore
from tocsin.stores.memory.store_folder import set_aside

logger = logging.getLogger(__name__)

DAILY_LOG: Final = "smp-server-stats.daily.log"


class StatisticsFiles:
    """Nothing here keeps a router from starting or stopping: what fails is logged."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, store: SmpMemoryStore) -> None:
        self._path: Final = _statistics_path(settings)
        self._daily: Final = settings.store / DAILY_LOG if settings.log_stats and settings.store else None
        self._store: Final = store
        self._statistics: Final = SmpStatistics(counters, since=datetime.now(UTC))

    def load(self) -> None:
        """Before anything is counted. A file that cannot be read is set aside, and counting begins at zero."""
        if self._path is None:
            return
        try:
            written = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
            self._statistics.restore(parse_statistics(self._path.read_text("utf-8")), written)
        except FileNotFoundError:
            return
        except (ValueError, OSError) as error:
            aside = set_aside(self._path, datetime.now(UTC))
            logger.warning(
                "%s cannot be read (%s): statistics begin anew, and it is kept as %s",
                self._path,
                error,
                aside.name,
            )
            try:
                os.replace(self._path, aside)
            except OSError as renaming:
                logger.error("%s cannot be renamed: %s", self._path, renaming)

    def save(self) -> None:
        if self._path is None:
            return
        record = self._statistics.record(self._counts(), datetime.now(UTC))
        try:
            replace_lines(self._path, (line.encode() for line in record.lines()))
        except StoreError as error:
            logger.error("statistics are not saved: %s", error)

    async def write_daily_lines(self) -> None:
        """Just after each midnight, UTC."""
        while True:
            await asyncio.sleep(seconds_to_midnight(time.time()) + 1.0)
            self.end_day(datetime.now(UTC))

    def end_day(self, now: datetime) -> None:
        if self._daily is None:
            return
        line = self._statistics.end_day(self._counts(), now)
        try:
            file = AppendOnlyFile(self._daily)
            try:
                file.append(line.encode() + b"\n")
            finally:
                file.close()
        except StoreError as error:
            logger.error("the statistics of the day are not written: %s", error)
        self.save()

    def _counts(self) -> StoreCounts:
        store = self._store
        messages = sum(store.message_count(queue) for queue in store.queues_with_messages())
        return StoreCounts(store.queue_count(), messages, store.notifier_count())


def _statistics_path(settings: SmpSettings) -> Path | None:
    """None if there is no folder for it: a router on a database needs none."""
    if settings.statistics_file is None or (
        settings.store is None and not settings.statistics_file.is_absolute()
    ):
        return None
    path = (settings.store or Path()) / settings.statistics_file
    if not path.parent.is_dir():
        logger.warning("statistics are not kept: there is no folder %s", path.parent)
        return None
    return path
