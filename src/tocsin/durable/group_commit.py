"""Group commit: changes gather in memory, and one write makes all of them durable.

Theory of operation. A change adds a line to the batch of its file. `commit` returns when all lines added so far are
written: it starts a write of the batches or, if one is in progress, waits for its end and then starts the next, which
serves all that wait. A write is one `write` and one `fdatasync` for each file with lines, in a thread of its own; the
event loop never waits for the disk.

The store log is made durable before the changes log, so a message is never on disk without its queue, nor a
notification without its subscription.

After a failed write it is unknown what is on disk, so every later `commit` fails too, until a restart reads it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from tocsin.durable.log_files import AppendOnlyFile
from tocsin.errors import StoreError


class PendingWrite(Protocol):
    """The lines that wait for one file."""

    def write(self) -> None:
        """Write the batch, in the thread of the commits. Raises StoreError."""


class _Batch(NamedTuple):
    file: AppendOnlyFile
    lines: list[bytes]
    is_last: bool = False
    """Whether the file is closed after this batch."""

    def write(self) -> None:
        if self.lines:
            self.lines.append(b"")
            self.file.append(b"\n".join(self.lines))
        if self.is_last:
            self.file.close()


class Commits(ABC):
    """Counts appended changes and durable ones. Subclasses write them. Belongs to one event loop."""

    def __init__(self) -> None:
        self._appended = 0
        self._durable = 0
        self._failure: StoreError | None = None

    @property
    def uncommitted(self) -> bool:
        """Whether a change is not durable yet. Always true once a write has failed."""
        return self._durable < self._appended or self._failure is not None

    async def commit(self) -> None:
        """Return when every change appended before is durable. Raises StoreError if that fails."""
        target = self._appended
        while self._durable < target or self._failure is not None:
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            await self._write_end()  # a cancelled committer leaves the write to the others

    @abstractmethod
    def _write_end(self) -> Awaitable[object]:
        """Return the end of the write in progress, or of a new one."""


class GroupCommit(Commits):
    """The store log and the changes log of one store."""

    def __init__(self, store_log: AppendOnlyFile, change_log: AppendOnlyFile | None, thread: str) -> None:
        super().__init__()
        self._store_log: Final = store_log
        self._change_log = change_log
        self._store_lines: list[bytes] = []
        self._change_lines: list[bytes] = []
        self._retired: list[_Batch] = []
        self._write_ended: asyncio.Event | None = None
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix=thread)

    @property
    def change_log_bytes(self) -> int:
        return self._change_log.size if self._change_log is not None else 0

    def add_store_line(self, line: bytes) -> None:
        if self._failure is None:  # after a failure nothing will be written
            self._store_lines.append(line)
            self._appended += 1

    def add_change_line(self, line: bytes) -> None:
        """Add a line to the changes log. Without one the line is dropped."""
        if self._failure is None and self._change_log is not None:
            self._change_lines.append(line)
            self._appended += 1

    def use_change_log(self, change_log: AppendOnlyFile) -> None:
        """Write later lines to this file. The present file gets the lines that were added before, and is closed."""
        if self._change_log is not None:
            self._retired.append(_Batch(self._change_log, self._change_lines, is_last=True))
            self._change_lines = []
        self._change_log = change_log

    def seal(self) -> None:
        """Make every later commit fail."""
        self._failure = self._failure or StoreError(f"{self._store_log.path} is closed")

    def close(self) -> None:
        """Wait for the write in progress. Uncommitted lines are lost."""
        self.seal()
        self._thread.shutdown()
        self._store_log.close()
        for batch in self._retired:
            batch.file.close()
        if self._change_log is not None:
            self._change_log.close()

    def _take_writes(self) -> list[PendingWrite]:
        """Return all waiting batches in the order of writing. Stores with more files extend it."""
        batches: list[PendingWrite] = [_Batch(self._store_log, self._store_lines), *self._retired]
        if self._change_log is not None:
            batches.append(_Batch(self._change_log, self._change_lines))
        self._store_lines, self._change_lines, self._retired = [], [], []
        return batches

    def _write_end(self) -> Awaitable[object]:
        return (self._write_ended or self._start_write()).wait()

    def _start_write(self) -> asyncio.Event:
        writes, upto = self._take_writes(), self._appended
        write = asyncio.get_running_loop().run_in_executor(self._thread, _write_all, writes)
        ended = self._write_ended = asyncio.Event()

        def written(done: asyncio.Future[None]) -> None:
            self._write_ended = None
            ended.set()
            if done.cancelled() or (error := done.exception()) is not None:
                cause = None if done.cancelled() else error
                self._failure = (
                    cause if isinstance(cause, StoreError) else StoreError(f"a write failed: {cause!r}")
                )
            else:
                self._durable = upto

        write.add_done_callback(written)
        return ended


def _write_all(writes: list[PendingWrite]) -> None:
    for each in writes:
        each.write()
