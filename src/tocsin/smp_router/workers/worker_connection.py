"""A connection that a worker has, as the router's process sees it: used like a `BlockConnection`.

Contents take the place of blocks, because the worker makes the blocks. The router counts the blocks that wait at the
worker, so that a peer which does not read slows down only its own answers, as on a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from tocsin.smp_router.workers.messages import EndedConnection, FrameKind, OpenedConnection, Progress
from tocsin.transport.block_connection import ReadByOne
from tocsin.transport.connection_loss import BlockConnectionLost, LossReason

CONSUMED_TOGETHER: Final = 2
"""The worker hears after this many blocks that the router has read them: half of those that may be under way."""


class FramesOut(Protocol):
    """The channel to the worker."""

    @property
    def is_full(self) -> bool:
        """Whether too much waits for the worker."""

    def send(self, kind: FrameKind, number: int, content: bytes = b"") -> None: ...

    def wants_room(self, connection: WorkerConnection) -> None:
        """Call `room_may_have_come` when the channel is no longer full."""


class WorkerConnection(ReadByOne):
    """It has one reader and any number of writers."""

    __slots__ = (
        "_consumed",
        "_inbox",
        "_line",
        "_loop",
        "_loss",
        "_number",
        "_out",
        "_progress",
        "_receives",
        "_room",
        "_watched",
        "_write_limit",
        "blocks_written",
        "ended_in_order",
        "peer_chain",
        "received_at",
        "sent_at",
    )

    def __init__(self, out: FramesOut, number: int, opened: OpenedConnection, *, write_limit: int) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._out = out
        self._number = number
        self._write_limit = write_limit
        self._inbox: deque[bytes] = deque()
        self._consumed = 0
        self._progress = Progress(0, None)
        self._room: asyncio.Future[None] | None = None
        self._line: asyncio.Lock | None = None
        """Held by who waits for room first. Others wait in line for it."""
        self._receives = True
        self._watched = False
        self._loss: LossReason | None = None
        self.peer_chain = opened.peer_chain
        self.received_at = self.sent_at = self._loop.time()
        self.blocks_written = 0
        self.ended_in_order = False

    @property
    def blocks_acknowledged(self) -> int | None:
        """As the worker reported last. It begins to report when this is asked for the first time."""
        if not self._watched:
            self._watched = True
            if self._loss is None:
                self._out.send(FrameKind.WATCH, self._number)
                # Not None, which would mean that our system does not report it.
                self._progress = Progress(self._progress.taken, self._progress.acknowledged or 0)
        return self._progress.acknowledged

    @property
    def write_room(self) -> int:
        """How many blocks `try_write_block` accepts now: 0 while others wait in line, so that none is overtaken."""
        return 0 if self._line is not None and self._line.locked() else self._free

    @property
    def _free(self) -> int:
        if self._loss is not None or self._out.is_full:
            return 0
        return max(0, self._write_limit - (self.blocks_written - self._progress.taken))

    async def read_block(self) -> bytes:
        """Return the content of the next block. Raises ConnectionLost after the last one."""
        while (content := self.read_block_nowait()) is None:
            await self.until_woken()
        return content

    async def until_woken(self) -> None:
        """Return when a block has arrived, or `wake_reader` was called. Call it when no block is there to read.

        Raises ConnectionLost after the end.
        """
        if not self._receives:
            raise self._lost()
        await self._wait_to_be_woken()

    def read_block_nowait(self) -> bytes | None:
        """Return the content of a block that has already arrived, or None."""
        if not self._inbox:
            return None
        self._consumed += 1
        if self._consumed >= CONSUMED_TOGETHER:
            self._out.send(FrameKind.CONSUMED, self._number, bytes((self._consumed,)))
            self._consumed = 0
        return self._inbox.popleft()

    def try_write_block(self, block: bytes) -> bool:
        """Send the content of a block if there is room. Raises ConnectionLost."""
        self._check_open()
        if not self._free:
            return False
        self._out.send(FrameKind.SEND, self._number, block)
        self.blocks_written += 1
        self.sent_at = self._loop.time()
        return True

    async def wait_for_room(self) -> None:
        """Wait in line until `try_write_block` accepts a block, if it is called before anything else is awaited.

        Raises ConnectionLost.
        """
        self._check_open()
        if self.write_room:
            return
        self._line = self._line or asyncio.Lock()
        async with self._line:
            while not self._free:
                self._check_open()
                self._room = self._loop.create_future()
                if self._out.is_full:
                    self._out.wants_room(self)
                try:
                    await self._room
                finally:
                    self._room = None

    def room_may_have_come(self) -> None:
        """Look again whether there is room."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def check_not_aborted(self) -> None:
        """Raises ConnectionLost if we gave the connection up."""
        if self._loss is LossReason.CLOSED_LOCALLY:
            raise self._lost()

    def abort(self) -> None:
        """Close the connection now. What waits at the worker is lost."""
        if self._loss is None:
            self._out.send(FrameKind.ABORT, self._number)
            self._inbox.clear()
            self._lose(LossReason.CLOSED_LOCALLY)

    # What the worker reports

    def received(self, content: bytes) -> None:
        if self._loss is None:
            self._inbox.append(content)
            self.received_at = self._loop.time()
            self.wake_reader()

    def progressed(self, progress: Progress) -> None:
        self._progress = progress
        self.room_may_have_come()

    def ended(self, ended: EndedConnection) -> None:
        self._receives = False
        self.ended_in_order = ended.ended_in_order
        self._progress = ended.progress
        if ended.lost and self._loss is None:
            self._lose(LossReason.CLOSED_BY_PEER if ended.ended_in_order else LossReason.RESET)
        self.wake_reader()

    def worker_lost(self) -> None:
        """The worker is gone, and nobody knows what the peer received."""
        if self._loss is None:
            self._lose(LossReason.RESET)

    def _lose(self, reason: LossReason) -> None:
        self._loss = reason
        self._receives = False
        self.wake_reader()
        self.room_may_have_come()

    def _check_open(self) -> None:
        if self._loss is not None:
            raise self._lost()

    def _lost(self) -> BlockConnectionLost:
        return BlockConnectionLost(self._loss or LossReason.CLOSED_LOCALLY)
