"""The event log on disk: segments of JSON lines that appear whole, and survive the death of their writer.

Theory of operation. Lines go into an open segment whose name begins with a dot, so that readers (Spark) do not see it.
Each append is one write into the system's cache: a process that is killed loses nothing. After some seconds or
megabytes the segment is synced and renamed to a name that readers see; it never changes again. A segment that a killed
process left open is cut at its last whole line and published by the next start. Old segments are deleted by age and,
when there are too many bytes, oldest first. When the disk is full or gone events are lost, counted, and nothing else
is disturbed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.observability.delivery_events import DeliveryEvent, encode_events

OPEN_PREFIX: Final = ".open-"
MOST_WAITING: Final = 256
PUBLISHED: Final = "events-*.jsonl"

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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._descriptor: int | None = None
        self._path: Path | None = None
        self._size = 0
        self._began_at = 0.0
        self._number = 0
        self._waiting: list[bytes] = []
        self.lost = 0
        """Events that could not be written."""
        self.written = 0
        self.left_out = 0
        """Events that were not written because too many of their kind came: counted by whoever leaves them out."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.glob(f"{OPEN_PREFIX}*")):
            _publish_left_over(path)

    def append(self, events: list[DeliveryEvent]) -> None:
        """In the system's hands when this returns."""
        self.append_lines([encode_events([event]) for event in events])

    def append_lines_later(self, lines: list[bytes]) -> None:
        """With the next ones: for events that may be missing after a kill, since nothing is counted by them."""
        self._waiting += lines
        if len(self._waiting) >= MOST_WAITING:
            self.append_lines([])

    def append_lines(self, lines: list[bytes]) -> None:
        """One for each event, with its end. In the system's hands when this returns."""
        if self._waiting:
            lines, self._waiting = self._waiting + lines, []
        data = b"".join(lines)
        try:
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            self.lost += len(lines)
            logger.error("delivery events are lost: %s", error.strerror)
            self._cut_torn_line()
            return
        self.written += len(lines)
        self._size += len(data)
        self.publish_if_due()

    def publish_if_due(self) -> None:
        """Also to be called by the clock, so that a quiet router's last events appear."""
        if self._waiting:
            self.append_lines([])
            return
        if self._descriptor is not None and (
            self._size >= self._settings.segment_bytes
            or self._now() - self._began_at >= self._settings.segment_seconds
        ):
            self._hand_over()

    def close(self) -> None:
        """Publishes what there is and waits for it."""
        if self._waiting:
            self.append_lines([])
        if self._descriptor is not None:
            self._hand_over()
        self._thread.shutdown()

    def _cut_torn_line(self) -> None:
        """What was written of events that are lost must not spoil the next ones."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)

    def _open(self) -> None:
        self._number += 1
        self._began_at = self._now()
        name = f"{int(self._began_at * 1_000_000):020d}-{os.getpid()}-{self._number}.jsonl"
        path = self._folder / f"{OPEN_PREFIX}{name}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path, self._size = path, 0

    def _hand_over(self) -> None:
        assert self._descriptor is not None
        assert self._path is not None
        self._thread.submit(_publish, self._descriptor, self._path)
        self._descriptor = self._path = None
        self._thread.submit(_remove_old, self._folder, self._settings, self._now())


def _publish(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
        os.close(descriptor)
        path.rename(path.with_name(f"events-{path.name.removeprefix(OPEN_PREFIX)}"))
    except OSError as error:
        logger.error("a segment of the event log could not be published: %s", error.strerror)


def _publish_left_over(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if not whole:
        os.close(descriptor)
        path.unlink()
        return
    os.ftruncate(descriptor, whole)
    _publish(descriptor, path)


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
