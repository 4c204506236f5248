"""The sending half of a block connection: a bounded queue in front of a non-blocking TLS socket.

Theory of operation. Blocks wait in `_queue` until `flush` takes them. A flush is scheduled once per loop
iteration, so small blocks written together leave together, in one TLS record and one system call. A block
that fills a record is sent at once, without a copy. When the kernel takes no more, OpenSSL keeps the
encrypted record and requires the same buffer again: `_unsent`. The queue and that one buffer
are all that is ever stored for a peer that does not read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

RECORD_BYTES: Final = 16_384
"""The largest plaintext of a TLS record (RFC 8446, 5.1)."""

_RECORDS_PER_FLUSH: Final = 16  # then yield to other connections


class OutgoingBlocks:
    """At most `limit` blocks wait here. When it is full, `try_put` is False and `wait_for_room` waits in line."""

    __slots__ = (
        "_idle_waiters",
        "_limit",
        "_loop",
        "_on_failure",
        "_on_stuck",
        "_on_writable",
        "_per_record",
        "_queue",
        "_refusing",
        "_reserved",
        "_scheduled",
        "_sock",
        "_stopped",
        "_stuck",
        "_stuck_at",
        "_unsent",
        "_unsent_blocks",
        "_waiters",
        "blocks_sent",
        "needs_read",
        "sent_at",
    )

    def __init__(
        self,
        sock: ssl.SSLSocket,
        *,
        block_size: int,
        limit: int,
        on_failure: Callable[[OSError], None],
        on_stuck: Callable[[bool], None],
    ) -> None:
        """`on_stuck` is called with True when the kernel takes no more, and with False when it has taken everything."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._limit = limit
        self._per_record = max(1, RECORD_BYTES // block_size)
        self._on_failure: Callable[[OSError], None] | None = on_failure
        self._on_stuck = on_stuck
        self._on_writable: Callable[[], None] | None = None
        self._queue: list[bytes] = []
        self._unsent: bytes | memoryview | None = None
        self._unsent_blocks = 0
        self._waiters: list[asyncio.Future[bool]] = []
        self._reserved = 0  # room granted to waiters whose tasks have not run yet
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._stuck = False
        self._stuck_at = 0.0
        self._refusing = False
        self._stopped = False
        self.needs_read = False
        """TLS must read before it can continue to write: call `flush_after_read` when the socket is readable."""
        self.blocks_sent = 0
        self.sent_at = self._loop.time()

    @property
    def blocks_waiting(self) -> int:
        """Blocks that the kernel does not have yet."""
        return len(self._queue) + self._unsent_blocks

    @property
    def room(self) -> int:
        """How many blocks `try_put` accepts now: 0 while others wait in line, so that none is overtaken."""
        return self._limit - len(self._queue) - self._unsent_blocks - self._reserved

    @property
    def stalled_since(self) -> float | None:
        """Loop time since which the kernel has taken nothing, because the peer does not read. None if nothing waits."""
        return max(self.sent_at, self._stuck_at) if self._stuck and self.blocks_waiting else None

    def try_put(self, block: bytes) -> bool:
        """Queue a block. Returns False if there is no room."""
        if len(self._queue) + self._unsent_blocks + self._reserved >= self._limit:
            return False
        self._queue.append(block)
        if self._scheduled or self._stuck or self.needs_read:
            return True
        if self._per_record == 1:
            self.flush()
        else:
            self._schedule()
        return True

    def expect_answers(self) -> None:
        """Schedule a flush after the task that was just woken, in the same loop iteration as its step."""
        if self._per_record > 1 and not self._scheduled and not self._stuck:
            self._schedule()

    async def wait_for_room(self) -> None:
        """Wait in line until `try_put` will accept a block, if it is called before anything is awaited.

        Returns at once after `refuse`.
        """
        while self.room <= 0 and not self._refusing:
            waiter: asyncio.Future[bool] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._leave_line(waiter)

    async def drained(self) -> None:
        """Return when the kernel has everything, or the connection has ended."""
        self.flush()
        while not self._stopped and (self._queue or self._unsent is not None):
            waiter = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once the socket can be written: TLS may need that in order to read."""
        self._on_writable = callback
        self._watch_writable()

    def flush(self) -> None:
        """Send until the queue is empty, the socket is full, or it is time to yield to others."""
        queue = self._queue
        for _ in range(_RECORDS_PER_FLUSH):
            unsent = self._unsent
            if unsent is None:
                if not queue:
                    if self._stuck or self._idle_waiters:
                        self._rest()
                    return
                self._unsent = unsent = self._next_buffer()
            try:
                sent = self._sock.send(unsent)
            except OSError as error:
                self._cannot_send(error)
                return
            if sent < len(unsent):  # Python does not ask OpenSSL for partial writes, but may one day
                self._unsent = memoryview(unsent)[sent:]
                continue
            self._unsent = None
            self.blocks_sent += self._unsent_blocks
            self._unsent_blocks = 0
            self.sent_at = self._loop.time()
            if self._waiters:
                self._grant_room()
        if not self._stuck and not self._scheduled:
            self._schedule()

    def flush_after_read(self) -> None:
        """Try again to send what TLS could not send before it had read."""
        self.needs_read = False
        self.flush()

    def refuse(self) -> None:
        """Accept no more blocks: every `wait_for_room` returns."""
        self._refusing = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(False)
        self._waiters.clear()

    def stop(self) -> None:
        """Drop everything and wake all waiting calls. Called before the socket is closed."""
        self._stopped = True
        if self._stuck:
            self._loop.remove_writer(self._sock.fileno())
            self._on_stuck(False)
        self._queue.clear()
        self._unsent = None
        self._unsent_blocks = 0
        self._on_failure = self._on_writable = None  # no cycle is left for the garbage collector
        self._on_stuck = _ignore
        self.refuse()
        self._wake_idle()

    def _next_buffer(self) -> bytes:
        queue = self._queue
        if self._per_record == 1 or len(queue) == 1:
            self._unsent_blocks = 1
            return queue.pop(0)
        joined = queue[: self._per_record]
        del queue[: self._per_record]
        self._unsent_blocks = len(joined)
        return b"".join(joined)

    def _cannot_send(self, error: OSError) -> None:
        if isinstance(error, ssl.SSLWantWriteError):
            self._watch_writable()
        elif isinstance(error, ssl.SSLWantReadError):
            self.needs_read = True
        elif self._on_failure is not None:
            self._on_failure(error)

    def _grant_room(self) -> None:
        while self._waiters and self.room > 0:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(True)
                self._reserved += 1

    def _leave_line(self, waiter: asyncio.Future[bool]) -> None:
        """Release the granted room for the task to use now, also if the task was cancelled meanwhile."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif not waiter.cancelled() and waiter.result():
            self._reserved -= 1
        if self._waiters:
            self._loop.call_soon(self._grant_room)  # in case the room is not used after all

    def _rest(self) -> None:
        if self._stuck and self._on_writable is None:
            self._loop.remove_writer(self._sock.fileno())
            self._stuck = False
            self._on_stuck(False)
        self._wake_idle()

    def _wake_idle(self) -> None:
        for waiter in self._idle_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._idle_waiters.clear()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        if self._queue and not self._stuck:
            self.flush()

    def _watch_writable(self) -> None:
        if not self._stuck:
            self._stuck = True
            self._stuck_at = self._loop.time()
            self._on_stuck(True)
            self._loop.add_writer(self._sock.fileno(), self._write_ready)

    def _write_ready(self) -> None:
        if self._on_writable is not None:
            callback, self._on_writable = self._on_writable, None
            callback()
        self.flush()


def _ignore(_stuck: bool) -> None:
    pass
