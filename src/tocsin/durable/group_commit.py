"""Group commit: changes gather in memory, and one write makes all of them durable.

Theory of operation. A change adds a line to the batch of its file. `commit` returns when all lines added so far are
written: it starts a write of the batches or, if one is in progress, waits for the next one, which serves all that wait
(`commits`). A write is one `write` and one `fdatasync` for each file with lines, in a thread of its own; the
event loop never waits for the disk.

The store log is made durable before the changes log, so a message is never on disk without its queue, nor a
notification without its subscription.

A write that fails is tried again until it succeeds (`commits`). Files that were written are not written again. What a
failed attempt left at the end of a file is cut off first (`AppendOnlyFile`), so each line is there once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tocsin.durable.commits import Commits, next_delay
from tocsin.durable.log_compaction import GROWTH, LEAST_BYTES, LogReplacement
from tocsin.durable.log_files import AppendOnlyFile
from tocsin.durable.writing_thread import WritingThread
from tocsin.errors import StoreError, StoreUnavailable


class PendingWrite(Protocol):
    """The lines that wait for one file."""

    def write(self) -> None:
        """Write the batch, in the thread of the commits. Raises StoreError, after which it may be called again."""


class _Batch(NamedTuple):
    file: AppendOnlyFile
    lines: list[bytes]
    is_last: bool = False
    """Whether the file is closed after this batch."""

    def write(self) -> None:
        if self.lines:
            self.file.append(b"\n".join([*self.lines, b""]))
        if self.is_last:
            self.file.close()


class GroupCommit(Commits):
    """The store log and the changes log of one store."""

    def __init__(self, store_log: AppendOnlyFile, change_log: AppendOnlyFile | None, thread: str) -> None:
        super().__init__()
        self._store_log: Final = store_log
        self._change_log = change_log
        self._store_lines: list[bytes] = []
        self._change_lines: list[bytes] = []
        self._retired: list[_Batch] = []
        self._replacement: LogReplacement | None = None
        self._store_end = self._compact_bytes = store_log.size
        self._retry: asyncio.TimerHandle | None = None
        self._thread: Final = WritingThread(thread)

    @property
    def change_log_bytes(self) -> int:
        return self._change_log.size if self._change_log is not None else 0

    def add_store_line(self, line: bytes) -> None:
        if self._failure is None:  # after a failure nothing will be written
            self._store_lines.append(line)
            self._store_end += len(line) + 1
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

    @property
    def store_log_outgrown(self) -> bool:
        """Whether the store log has several times its compact size."""
        return self._store_log.size > max(LEAST_BYTES, GROWTH * self._compact_bytes)

    async def compact_store_log(self, draft: Callable[[int], Path]) -> None:
        """Make the store log compact. `draft` writes one of the log's first bytes, and is called in a thread.

        Other tasks may change and commit meanwhile. Raises StoreError, which leaves the log as it was.
        """
        upto = self._store_end
        await self.commit()
        replacement = LogReplacement(self._store_log, await asyncio.to_thread(draft, upto), upto)
        self._replacement = replacement
        self._appended += 1
        await self.commit()
        self._store_end -= replacement.saved
        # A draft that was given up is not tried again until the log has grown once more.
        self._compact_bytes = self._store_log.size

    def seal(self) -> None:
        """Make every later commit fail."""
        self._end(StoreError(f"{self._store_log.path} is closed"))

    def close(self) -> None:
        """Wait for the attempt in progress. Uncommitted lines are lost."""
        self.seal()
        if self._retry is not None:
            self._retry.cancel()
        self._thread.close()
        self._store_log.close()
        for batch in self._retired:
            batch.file.close()
        if self._change_log is not None:
            self._change_log.close()

    def _take_writes(self) -> list[PendingWrite]:
        """Return all waiting batches in the order of writing. Stores with more files extend it."""
        batches: list[PendingWrite] = [_Batch(self._store_log, self._store_lines), *self._retired]
        if self._replacement is not None:
            batches.insert(1, self._replacement)
            self._replacement = None
        if self._change_log is not None:
            batches.append(_Batch(self._change_log, self._change_lines))
        self._store_lines, self._change_lines, self._retired = [], [], []
        return batches

    def _start_write(self) -> None:
        self._attempt(deque(self._take_writes()), self._appended, 0.0)

    def _attempt(self, writes: deque[PendingWrite], upto: int, delay: float) -> None:
        """Try to write the batches. `delay` is the time since the last attempt."""
        self._thread.do(
            partial(_write_all, writes), partial(self._attempted, writes, upto, next_delay(delay))
        )

    def _attempted(
        self, writes: deque[PendingWrite], upto: int, delay: float, error: BaseException | None
    ) -> None:
        if error is None:
            self._written(upto)
        elif isinstance(error, StoreUnavailable):
            self._attempt_failed(error)
            if self._failure is None:
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(delay, self._attempt, writes, upto, delay)
        else:
            self._fail(error if isinstance(error, StoreError) else StoreError(f"a write failed: {error!r}"))


def _write_all(writes: deque[PendingWrite]) -> None:
    while writes:
        writes[0].write()
        writes.popleft()
