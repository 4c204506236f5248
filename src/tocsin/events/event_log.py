"""The event log on disk: segments of JSON lines that appear whole and survive a crash of their writer.

Segments are synced and published after some seconds or megabytes, for Spark to read. Old ones are deleted by age and,
when there are too many bytes, oldest first. If the disk is full, slow or gone, events are lost and counted; the router
goes on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tocsin.errors import ConfigError
from tocsin.events.event_losses import EventLosses
from tocsin.events.private_files import file_mode
from tocsin.events.pseudonyms import PseudonymKeys, keys_folder

__all__ = ["OPEN_PREFIX", "PUBLISHED", "EventLog", "EventLogSettings"]

MOST_WAITING: Final = 256
MOST_PUBLISHING: Final = 16
"""Segments that may wait to be synced and published at a time."""
SLOW_SECONDS: Final = 0.25
"""Events are written in the event loop's thread, so a write that takes longer is not repeated soon …"""
REST_SECONDS: Final = 10.0
"""… but events are lost, and counted, for this time."""
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
    """Writes the event log from the event loop's thread. Only opening it raises OSError."""

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
        self._publishing = 0
        """Segments that wait to be published."""
        self._resting_until = -math.inf
        self.losses = EventLosses()
        self.lost = 0
        """Events that could not be written."""
        self.written = 0
        self.left_out = 0
        """Events that their recorder left out because there were too many of their kind."""

    def append_later(self, pieces: list[bytes], count: int) -> None:
        """Write lines together with the next events. A kill before that loses them."""
        self._waiting += pieces
        self._waiting_count += count
        if self._waiting_count >= MOST_WAITING:
            self.append([], 0)

    def append(self, pieces: list[bytes], count: int) -> None:
        """Write `count` lines, given in any number of pieces. The operating system has them when this returns."""
        if self._waiting:
            pieces, self._waiting = self._waiting + pieces, []
            count, self._waiting_count = self._waiting_count + count, 0
        began = time.monotonic()
        if began < self._resting_until:
            self._lose(count, OSError(errno.EAGAIN, "the disk is slow"))
            return
        try:
            self._segments.append(b"".join(pieces))
        except OSError as error:
            self._lose(count, error)
            return
        finally:
            if time.monotonic() - began >= SLOW_SECONDS:
                self._resting_until = time.monotonic() + REST_SECONDS
        self.written += count
        self.publish_if_due()

    def _lose(self, count: int, error: OSError) -> None:
        self.lost += count
        self.losses.add(count, error)

    def publish_if_due(self) -> None:
        """Publish the open segment if it is due. Call this regularly, so that a quiet router's last events appear."""
        if self._waiting:
            self.append([], 0)
            return
        segments, settings = self._segments, self._settings
        if self._publishing >= MOST_PUBLISHING:
            return  # the open segment grows meanwhile, and no further files are open
        if segments.is_open and (
            segments.size >= settings.segment_bytes
            # A clock that was set back must not keep it open until the time has come again.
            or not 0 <= self._now() - segments.began_at < settings.segment_seconds
        ):
            self._hand_over()

    def close(self) -> None:
        """Publish the open segment and wait for it."""
        if self._waiting:
            self.append([], 0)
        if self._segments.is_open:
            self._hand_over()
        self._thread.shutdown()

    def _hand_over(self) -> None:
        publish = self._segments.detach()
        self._publishing += 1

        def publish_and_clean(now: float) -> None:
            try:
                publish()
                _remove_old(self._folder, self._settings, now)
            finally:
                self._publishing -= 1

        self._thread.submit(publish_and_clean, self._now())


def _remove_old(folder: Path, settings: EventLogSettings, now: float) -> None:
    try:
        segments = sorted(folder.glob(PUBLISHED))
        sizes = {path: path.stat() for path in segments}
        total = sum(stat.st_size for stat in sizes.values())
        for path, stat in sizes.items():
            if total <= settings.most_bytes and now - stat.st_mtime <= settings.retention_seconds:
                break
            path.unlink(missing_ok=True)
            total -= stat.st_size
    except OSError as error:
        logger.error("could not remove old segments of the event log: %s", error.strerror)


OPEN_PREFIX: Final = ".open-"
_NAME: Final = re.compile(r"(?:\.open|[a-z]+)-(\d+)-\d+-\d+\.jsonl")


class SegmentWriter:
    """Writes segments from one thread. Raises OSError if the folder cannot be used."""

    def __init__(self, folder: Path, prefix: str, now: Callable[[], float]) -> None:
        """Names of published segments begin with `prefix`."""
        self._folder = folder
        self._prefix = prefix
        self._now = now
        self._descriptor: int | None = None
        self._path: Path | None = None
        self._number = 0
        self.size = 0
        """The size of the open segment in bytes."""
        self.began_at = 0.0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mode = file_mode(folder)
        names = [_NAME.fullmatch(each.name) for each in folder.iterdir()]
        self._last = max((int(name[1]) for name in names if name), default=0)
        for path in sorted(folder.glob(f"{OPEN_PREFIX}*")):
            self._publish_left_over(path)

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def append(self, data: bytes) -> None:
        """Append whole lines, which the operating system has when this returns.

        Raises OSError and then appends nothing.
        """
        try:
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            self._cut_torn_line()
            raise
        self.size += len(data)

    def detach(self) -> Callable[..., None]:
        """End the open segment. Call the returned function to publish it, perhaps in another thread."""
        assert self._descriptor is not None
        assert self._path is not None
        descriptor, path, target = self._descriptor, self._path, self._published(self._path)
        self._descriptor = self._path = None

        def publish(*, synced: bool = True) -> None:
            _publish_segment(descriptor, path, target, synced=synced)

        return publish

    def _open(self) -> None:
        self._number += 1
        self.began_at = self._now()
        self._last = max(self._last + 1, int(self.began_at * 1_000_000))
        path = self._folder / f"{OPEN_PREFIX}{self._last:020d}-{os.getpid()}-{self._number}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(self._descriptor, self._mode)
        self._path, self.size = path, 0

    def _cut_torn_line(self) -> None:
        """Cut off what was written of lost lines, so that it does not spoil the next ones."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size)

    def _published(self, path: Path) -> Path:
        return path.with_name(f"{self._prefix}-{path.name.removeprefix(OPEN_PREFIX)}")

    def _publish_left_over(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR)
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if not whole:
            os.close(descriptor)
            path.unlink()
            return
        os.ftruncate(descriptor, whole)
        _publish_segment(descriptor, path, self._published(path), synced=True)


def _publish_segment(descriptor: int, path: Path, target: Path, *, synced: bool) -> None:
    try:
        try:
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.rename(target)
    except OSError as error:
        logger.error("could not publish a segment of %s: %s", target.parent.name, error.strerror)


HANDED_OVER: Final = "pending"
"""The prefix of segments with due pushes."""
SEGMENTS: Final = f"{HANDED_OVER}-*.jsonl"
OUTCOMES: Final = "outcomes"
"""The prefix of segments with outcomes, and the name of their folder inside the one with due pushes."""


DAY: Final = 86_400.0


_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors that do not keep a router from starting: they may pass, and until then events are lost and counted."""


class SetsEventLog(Protocol):
    """Settings of the event log, the same for both routers."""

    @property
    def event_log(self) -> Path | None: ...
    @property
    def event_log_keys(self) -> Path | None: ...
    @property
    def event_log_retention_days(self) -> int: ...
    @property
    def event_log_bytes(self) -> int: ...
    @property
    def event_log_segment_seconds(self) -> float: ...


class OpenedEventLog(NamedTuple):
    log: EventLog
    keys: PseudonymKeys


@asynccontextmanager
async def opened_event_log(settings: SetsEventLog) -> AsyncIterator[OpenedEventLog | None]:
    """Open the event log if the settings name its folder, and publish all of it at the end.

    Raises ConfigError if the folder cannot be used.
    """
    if settings.event_log is None:
        yield None
        return
    how = EventLogSettings(
        segment_seconds=settings.event_log_segment_seconds,
        retention_seconds=settings.event_log_retention_days * DAY,
        most_bytes=settings.event_log_bytes,
    )
    try:
        keys = PseudonymKeys(
            keys_folder(settings.event_log, settings.event_log_keys),
            settings.event_log_retention_days,
            time.time,
        )
        try:
            keys.current()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            logger.error("the event log cannot be written yet: %s", error.strerror)
        log = EventLog(settings.event_log, how)
    except OSError as error:
        raise ConfigError(f"cannot use the event log: {error.filename}: {error.strerror}") from error
    logger.info("writing delivery events to %s", settings.event_log)
    publishing = asyncio.create_task(_publish(log, settings.event_log_segment_seconds))
    try:
        yield OpenedEventLog(log, keys)
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await asyncio.to_thread(log.close)


async def _publish(log: EventLog, interval: float) -> None:
    """Publish regularly, so that a quiet router's last events appear."""
    while True:
        await asyncio.sleep(interval)
        try:
            log.publish_if_due()
        except Exception:
            logger.exception("the event log could not be published; the next attempt is in %s s", interval)
