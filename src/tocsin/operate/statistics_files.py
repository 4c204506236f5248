"""The statistics of a router over its restarts: the statistics file, and one line for each day."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from tocsin.durable.log_files import AppendOnlyFile, replace_lines, set_aside
from tocsin.errors import StoreError
from tocsin.operate.statistics_values import DAY_SECONDS, line_times

logger = logging.getLogger(__name__)

LONGEST_SLEEP: Final = 3600.0
"""The system's clock may be set meanwhile."""


class Statistics(Protocol):
    """What a router has counted."""

    def restore(self, text: str, written: datetime) -> None:
        """Goes on where that file ended. Raises ValueError if it cannot be read, and then changes nothing."""

    def lines(self, now: datetime) -> Iterable[str]:
        """Of the file."""

    def end_day(self, now: datetime) -> str:
        """The line of the day; counting begins anew."""


class KeptStatistics:
    """Nothing here keeps a router from starting or stopping: what fails is logged."""

    def __init__(self, statistics: Statistics, path: Path | None, daily: Path | None) -> None:
        """Without `path` nothing is kept, without `daily` no line is written."""
        self._statistics: Final = statistics
        self._path: Final = path
        self._daily: Final = daily

    def load(self) -> None:
        """Before anything is counted. A file that cannot be read is set aside, and counting begins at zero."""
        if self._path is None:
            return
        try:
            written = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
            self._statistics.restore(self._path.read_text("utf-8"), written)
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
        lines = self._statistics.lines(datetime.now(UTC))
        try:
            replace_lines(self._path, (line.encode() for line in lines))
        except StoreError as error:
            logger.error("statistics are not saved: %s", error)

    async def write_daily_lines(self, start: float = 0.0, interval: float = DAY_SECONDS) -> None:
        """At this time of day (seconds, UTC), and then at exact intervals."""
        for at in line_times(time.time(), start, interval):
            await _sleep_until(at)
            self.end_day(datetime.fromtimestamp(at, UTC))

    def end_day(self, now: datetime) -> None:
        if self._daily is None:
            return
        line = self._statistics.end_day(now)
        try:
            file = AppendOnlyFile(self._daily)
            try:
                file.append(line.encode() + b"\n")
            finally:
                file.close()
        except StoreError as error:
            logger.error("the statistics of the day are not written: %s", error)
        self.save()


def statistics_path(store: Path | None, file: Path | None) -> Path | None:
    """None if there is no folder for it: a router on a database needs none."""
    if file is None or (store is None and not file.is_absolute()):
        return None
    path = (store or Path()) / file
    if not path.parent.is_dir():
        logger.warning("statistics are not kept: there is no folder %s", path.parent)
        return None
    return path


async def _sleep_until(at: float) -> None:
    while (left := at - time.time()) > 0:  # noqa: ASYNC110 - nothing else ends it
        await asyncio.sleep(min(left, LONGEST_SLEEP))
