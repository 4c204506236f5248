"""The event log on disk: segments of JSON lines that appear whole, and survive the death of their writer.

Segments (`segments`) are published after some seconds or megabytes, synced, for Spark to read. Old ones are deleted by
age and, when there are too many bytes, oldest first. When the disk is full or gone events are lost, counted, and
nothing else is disturbed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.events.segments import OPEN_PREFIX, SegmentWriter

__all__ = ["OPEN_PREFIX", "PUBLISHED", "EventLog", "EventLogSettings"]

MOST_WAITING: Final = 256
PREFIX: Final = "events"
PUBLISHED: Final = f"{PREFIX}-*.jsonl"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventLogSettings:
    segment_bytes: int = 8 * 1024 * 1024
    segment_seconds: float = 5.0
    retention_seconds: float = 30 * 86_400.0
    most_bytes: int = 10 * 1024**3


class EventLog:
    """Belongs to one thread, the event loop's. Raises OSError when it cannot be opened, never afterwards."""

    def __init__(
        self,
        folder: Path,
        settings: EventLogSettings | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._settings = settings or EventLogSettings()
        self._now = now
        self._segments = SegmentWriter(folder, PREFIX, now)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._waiting: list[bytes] = []
        self._waiting_count = 0
        self.lost = 0
        """Events that could not be written."""
        self.written = 0
        self.left_out = 0
        """Events that were not written because too many of their kind came: counted by whoever leaves them out."""

    def append_later(self, pieces: list[bytes], count: int) -> None:
        """Write them with the next events: for events that may be missing after a kill."""
        self._waiting += pieces
        self._waiting_count += count
        if self._waiting_count >= MOST_WAITING:
            self.append([], 0)

    def append(self, pieces: list[bytes], count: int) -> None:
        """Write `count` lines, given in any number of pieces. The system has them when this returns."""
        if self._waiting:
            pieces, self._waiting = self._waiting + pieces, []
            count, self._waiting_count = self._waiting_count + count, 0
        try:
            self._segments.append(b"".join(pieces))
        except OSError as error:
            self.lost += count
            logger.error("delivery events are lost: %s", error.strerror)
            return
        self.written += count
        self.publish_if_due()

    def publish_if_due(self) -> None:
        """Also to be called by the clock, so that a quiet router's last events appear."""
        if self._waiting:
            self.append([], 0)
            return
        segments, settings = self._segments, self._settings
        if segments.is_open and (
            segments.size >= settings.segment_bytes
            or self._now() - segments.began_at >= settings.segment_seconds
        ):
            self._hand_over()

    def close(self) -> None:
        """Publishes what there is and waits for it."""
        if self._waiting:
            self.append([], 0)
        if self._segments.is_open:
            self._hand_over()
        self._thread.shutdown()

    def _hand_over(self) -> None:
        self._thread.submit(self._segments.detach())
        self._thread.submit(_remove_old, self._folder, self._settings, self._now())


def _remove_old(folder: Path, settings: EventLogSettings, now: float) -> None:
    segments = sorted(folder.glob(PUBLISHED))
    try:
        sizes = {path: path.stat() for path in segments}
        total = sum(stat.st_size for stat in sizes.values())
        for path, stat in sizes.items():
            if total <= settings.most_bytes and now - stat.st_mtime <= settings.retention_seconds:
                break
            path.unlink(missing_ok=True)
            total -= stat.st_size
    except OSError as error:
        logger.error("old segments of the event log could not be removed: %s", error.strerror)
