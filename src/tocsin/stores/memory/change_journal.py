"""Group commit: changes gather in memory, and one write makes all of them durable.

Theory of operation. `append` turns a change into a line and puts it into the batch of its file. `commit` sees to it
that everything appended so far gets written: it starts a write of the batches, or, if one is under way, waits for its
end and then starts the next, which serves everyone who waits. A write is one `write` and one `fdatasync` for each file
that has lines, in a thread of its own; the event loop never waits for the disk.

The store log is made durable before the changes log: a message never comes to lie on disk without its queue.

After a failed write nobody can say what is on disk, so every later `commit` fails too, until a restart reads it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tocsin.errors import StoreError
from tocsin.stores.memory.log_files import AppendOnlyFile
from tocsin.stores.memory.smp_message_log import (
    MessageAdded,
    MessageChange,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
    encode_change_line,
)
from tocsin.stores.memory.smp_store_log import StoreLogRecord

_MESSAGE_CHANGES: Final = (MessageAdded, MessageRemoved, NotificationAdded, NotificationRemoved)


class ChangeJournal:
    """Implements `Journal` over the store log and the changes log. Belongs to one event loop.

    Without a changes log, changes of messages and notifications are forgotten.
    """

    def __init__(self, queue_log: AppendOnlyFile, change_log: AppendOnlyFile | None) -> None:
        self._queue_log: Final = queue_log
        self._change_log = change_log
        self._queue_lines: list[bytes] = []
        self._change_lines: list[bytes] = []
        self._appended = 0
        self._durable = 0
        self._write_ended: asyncio.Event | None = None
        self._failure: StoreError | None = None
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="smp-store")

    @property
    def change_log_bytes(self) -> int:
        return self._change_log.size if self._change_log is not None else 0

    @property
    def uncommitted(self) -> bool:
        """True for good once a write has failed, so that nobody takes a change for durable."""
        return self._durable < self._appended or self._failure is not None

    def append(self, change: StoreLogRecord | MessageChange) -> None:
        if self._failure is not None:
            return  # nothing will be written any more
        if isinstance(change, _MESSAGE_CHANGES):
            if self._change_log is None:
                return
            self._change_lines.append(encode_change_line(change))
        else:
            self._queue_lines.append(change.encode())
        self._appended += 1

    async def commit(self) -> None:
        target = self._appended
        while self._durable < target or self._failure is not None:
            if self._failure is not None:
                raise StoreError(str(self._failure)) from self._failure
            ended = self._write_ended or self._start_write()
            await ended.wait()  # a cancelled committer leaves the write to the others

    def use_change_log(self, change_log: AppendOnlyFile) -> None:
        """Lines that are not being written yet go to this file; the one used so far is closed after its last write."""
        if self._change_log is not None:
            self._thread.submit(self._change_log.close)
        self._change_log = change_log

    def seal(self) -> None:
        """No commit succeeds any more."""
        self._failure = self._failure or StoreError(f"{self._queue_log.path} is closed")

    def close(self) -> None:
        """Waits for a write under way. What was not committed is lost."""
        self.seal()
        self._thread.shutdown()
        self._queue_log.close()
        if self._change_log is not None:
            self._change_log.close()

    def _start_write(self) -> asyncio.Event:
        batches = [(self._queue_log, self._queue_lines)]
        if self._change_log is not None:
            batches.append((self._change_log, self._change_lines))
        self._queue_lines, self._change_lines = [], []
        upto = self._appended
        write = asyncio.get_running_loop().run_in_executor(self._thread, _write_batches, batches)
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


def _write_batches(batches: list[tuple[AppendOnlyFile, list[bytes]]]) -> None:
    for file, lines in batches:
        if lines:
            lines.append(b"")
            file.append(b"\n".join(lines))
