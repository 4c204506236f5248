"""Object storage between router and job: rows are objects in `rows/`, outcomes are objects in `outcomes/`.

An object appears whole. Names of rows increase. The job deletes rows when their batch is committed, except the newest,
which tells a router that restarts which names have been used. The router's end works in a thread, because each request
takes its time.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.channel import SEGMENT_BYTES, Segment
from tocsin.ntf_router.delivery.channels.router_end import ChannelThread, WaitingOutcomes, require_room

LOOK_SECONDS: Final = 0.2
"""Between two looks for news. Each look is a request that costs money in most storages."""
TRIES: Final = 3
PAUSE_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 0.05
"""The shortest time between two objects with rows: storage has a price for each."""
_BUFFER: Final = 65_536
_ROWS: Final = "rows"
_OUTCOMES: Final = "outcomes"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ObjectStore:
    """Objects below an address. Every failure is an OSError."""

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        """Raises ConfigError without the packages for it."""
        try:
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import PyFileSystem  # type: ignore[import-untyped]  # it has no types
        except ImportError as error:
            raise ConfigError(
                f"{address} needs the packages of the pipeline: install tocsin[pipeline]"
            ) from error
        with _translated(address):
            self._files: Any = PyFileSystem(DeltaStorageHandler(address, dict(options) or None))
        self.address = address

    def names(self, folder: str) -> list[Segment]:
        """In their order."""
        from pyarrow.fs import FileSelector

        with _translated(self.address):
            found = self._files.get_file_info(FileSelector(folder, allow_not_found=True))
            return sorted(Segment(each.base_name, each.size or 0) for each in found if each.is_file)

    def read(self, path: str) -> bytes | None:
        """None: it was deleted."""
        with _translated(self.address):
            try:
                with self._files.open_input_file(path) as file:
                    data: bytes = file.read()
                    return data
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes) -> None:
        # The library's own stream takes only bytes, which it gets through a buffer.
        with (
            _translated(self.address),
            self._files.open_output_stream(path, compression=None, buffer_size=_BUFFER) as file,
        ):
            file.write(data)

    def delete(self, path: str) -> None:
        with _translated(self.address), suppress(FileNotFoundError):
            self._files.delete_file(path)


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """The library raises errors of several kinds."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise OSError(errno.EIO, f"{address}: {reason}") from error


class StorageChannel:
    """The router's end."""

    def __init__(self, store: ObjectStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._withdraws = False
        self._begun = 0
        """How often the router has withdrawn everything."""
        self._last: int | None = None
        """The number in the name of the last object with rows."""
        self._outcomes = WaitingOutcomes()
        self._looks = False
        self._looked_at = 0.0
        self._wrote_at = 0.0
        self._news = threading.Event()
        self._thread = ChannelThread("in object storage", OSError, self._work)

    def begin(self, line: bytes) -> None:
        with self._lock:
            self._queue.clear()
            self._queue.append(line)
            self._queued = len(line)
            self._withdraws = True
            self._begun += 1
        self._news.set()

    def publish(self, lines: Sequence[bytes]) -> None:
        with self._lock:
            self._queued += require_room(self._queued, lines, "object storage")
            self._queue.extend(lines)
        self._news.set()

    def take(self) -> Iterator[bytes]:
        self._looks = True  # only while the router waits for outcomes
        return self._outcomes.take()

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._thread.running()

    def _work(self) -> None:
        if self._news.wait(LOOK_SECONDS):
            self._thread.wait(self._wrote_at + WRITE_SECONDS - time.monotonic())
        self._news.clear()
        self._write_rows()
        if self._looks and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looks, self._looked_at = False, time.monotonic()
            self._read_outcomes()

    def _write_rows(self) -> None:
        if self._last is None:
            names = self._store.names(_ROWS)
            self._last = _number(names[-1].name) if names else 0
        while True:
            with self._lock:
                withdraws, begun, data = self._withdraws, self._begun, self._next()
            if withdraws:
                for each in self._store.names(_ROWS):
                    self._store.delete(f"{_ROWS}/{each.name}")
            if data:
                self._last = max(self._last + 1, int(self._now() * 1_000_000))
                self._store.write(f"{_ROWS}/{self._last:020d}.jsonl", data)
                self._wrote_at = time.monotonic()
            with self._lock:
                if self._begun == begun:
                    self._withdraws = False
                    self._drop(len(data))
                if not self._queue:
                    return

    def _next(self) -> bytes:
        """Rows for the next object. They stay in the queue until they are written."""
        parts: list[bytes] = []
        size = 0
        for line in self._queue:
            if parts and size + len(line) > SEGMENT_BYTES:
                break
            parts.append(line)
            size += len(line)
        return b"".join(parts)

    def _drop(self, size: int) -> None:
        while size > 0:
            line = self._queue.popleft()
            size -= len(line)
            self._queued -= len(line)

    def _read_outcomes(self) -> None:
        for each in self._store.names(_OUTCOMES):
            if not self._outcomes.has_room(each.size):
                return
            path = f"{_OUTCOMES}/{each.name}"
            lines = self._store.read(path)
            if lines:
                self._outcomes.add(lines)
            self._store.delete(path)


@dataclass(frozen=True, slots=True)
class RouterStorage:
    """The job's end. Each process opens the storage itself."""

    address: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    """Settings of object storage, which may be secret."""

    @property
    def place(self) -> str:
        return self.address

    def new(self, after: str) -> Sequence[Segment]:
        """What was there at the last look."""
        looks = _looks_of(self)
        if time.monotonic() - looks.at >= LOOK_SECONDS:
            try:
                looks.found = self._store.names(_ROWS)
            except OSError as error:
                logger.warning("cannot look for rows: %s", error)
            looks.at = time.monotonic()
        return [each for each in looks.found if each.name > after]

    def between(self, after: str, end: str) -> Sequence[Segment]:
        return [each for each in self._names() if after < each.name <= end]

    def read(self, after: str, end: str) -> Iterator[tuple[int, bytes]]:
        for each in self.between(after, end):
            data: bytes | None = self._tried(partial(self._store.read, f"{_ROWS}/{each.name}"))
            if data:
                yield _number(each.name), data

    def done(self, end: str) -> None:
        _deleting.submit(self._delete_before, end)

    def publish(self, key: str, lines: bytes) -> None:
        path = f"{_OUTCOMES}/{key}-{time.time_ns()}.jsonl"
        self._tried(partial(self._store.write, path, lines))

    def _delete_before(self, end: str) -> None:
        for each in self._names():
            if each.name < end:
                self._tried(partial(self._store.delete, f"{_ROWS}/{each.name}"))

    def _names(self) -> list[Segment]:
        found = self._tried(partial(self._store.names, _ROWS))
        return found or []

    def _tried(self, work: Callable[[], T]) -> T | None:
        """A storage that does not answer has no rows: the router pushes by itself then."""
        for number in range(TRIES):
            try:
                return work()
            except OSError as error:
                logger.warning("%s", error)
                time.sleep(PAUSE_SECONDS * number)
        return None

    @property
    def _store(self) -> ObjectStore:
        return _opened(self)


@dataclass
class _Looks:
    """What the last look found, for each process."""

    at: float = -LOOK_SECONDS
    found: Sequence[Segment] = ()


def _number(name: str) -> int:
    return int(name.partition(".")[0])


@lru_cache(maxsize=64)
def _opened(router: RouterStorage) -> ObjectStore:
    return ObjectStore(router.address, dict(router.options))


@lru_cache(maxsize=64)
def _looks_of(_router: RouterStorage) -> _Looks:
    return _Looks()


_deleting: Final = ThreadPoolExecutor(1, thread_name_prefix="hand-over storage")
