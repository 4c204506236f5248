"""Keeps a router's statistics across restarts: the statistics file, and one line per day."""

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
"""Wake at least this often: the system's clock may be changed."""


class Statistics(Protocol):
    """The counts of a router."""

    def restore(self, text: str, written: datetime) -> None:
        """Continue from a file's text. Raises ValueError, and changes nothing, if it is malformed."""

    def lines(self, now: datetime) -> Iterable[str]:
        """The lines of the file."""

    def end_day(self, now: datetime) -> str:
        """Return the line of the day and restart counting."""


class KeptStatistics:
    """Logs its failures: statistics never keep a router from starting or stopping."""

    def __init__(self, statistics: Statistics, path: Path | None, daily: Path | None) -> None:
        """Without `path` nothing is kept; without `daily` no line is written."""
        self._statistics: Final = statistics
        self._path: Final = path
        self._daily: Final = daily

    def load(self) -> None:
        """Call it before anything is counted. An unreadable file is set aside, and counting starts at zero."""
        if self._path is None:
            return
        try:
            written = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
            self._statistics.restore(self._path.read_text("utf-8"), written)
        except FileNotFoundError:
            return
        except Exception as error:
            aside = set_aside(self._path, datetime.now(UTC))
            logger.warning(
                "%s cannot be read (%s): statistics start at zero, and the file is kept as %s",
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
        try:
            self._write_file(self._text())
        except Exception:
            logger.exception("cannot save the statistics")

    def _text(self) -> list[bytes]:
        return [line.encode() for line in self._statistics.lines(datetime.now(UTC))]

    def _write_file(self, lines: list[bytes]) -> None:
        if self._path is None:
            return
        try:
            replace_lines(self._path, lines)
        except StoreError as error:
            logger.error("cannot save the statistics: %s", error)

    async def write_daily_lines(self, start: float = 0.0, interval: float = DAY_SECONDS) -> None:
        """Write a line at this time of day (seconds, UTC), and then at exact intervals."""
        for at in line_times(time.time(), start, interval):
            await _sleep_until(at)
            try:
                if (line := self._line_of_day(datetime.fromtimestamp(at, UTC))) is not None:
                    await asyncio.to_thread(self._write_line, line)
                    # The event loop changes what is counted, so it also makes the text.
                    await asyncio.to_thread(self._write_file, self._text())
            except Exception:
                logger.exception("cannot write the statistics of the day")

    def end_day(self, now: datetime) -> None:
        if (line := self._line_of_day(now)) is not None:
            self._write_line(line)
            self.save()

    def _line_of_day(self, now: datetime) -> str | None:
        return None if self._daily is None else self._statistics.end_day(now)

    def _write_line(self, line: str) -> None:
        assert self._daily is not None
        try:
            file = AppendOnlyFile(self._daily)
            try:
                file.append(line.encode() + b"\n")
            finally:
                file.close()
        except StoreError as error:
            logger.error("cannot write the statistics of the day: %s", error)


def statistics_path(store: Path | None, file: Path | None) -> Path | None:
    """None if there is no folder for it, as for a router that uses a database."""
    if file is None or (store is None and not file.is_absolute()):
        return None
    path = (store or Path()) / file
    if not path.parent.is_dir():
        logger.warning(
            "statistics are not kept, because the folder %s does not exist: create it", path.parent
        )
        return None
    return path


async def _sleep_until(at: float) -> None:
    while (left := at - time.time()) > 0:  # noqa: ASYNC110 - only the clock ends it
        await asyncio.sleep(min(left, LONGEST_SLEEP))
