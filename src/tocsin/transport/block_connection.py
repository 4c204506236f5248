"""One established TLS connection that carries blocks of a fixed size in both directions (smp.md 3.1).

Theory of operation. The socket never blocks; the loop calls `_read_ready` when bytes arrive. Whole blocks
wait in `_inbox`; when it is full the socket is no longer read, so that the peer feels TCP's back-pressure,
and reading continues when half of it is consumed. A connection on which nothing arrives has no buffer. The
other direction is `OutgoingBlocks`.

A connection ends once, in `_end`, which wakes all waiting calls. They find the reason in `_loss`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from tocsin.errors import LocalProtocolError
from tocsin.transport.connection_loss import CLOSED_BY_PEER, BlockConnectionLost, LossReason, loss_reason
from tocsin.transport.outgoing_blocks import OutgoingBlocks
from tocsin.transport.socket_options import has_arrived, reset_when_closed, unacknowledged_bytes, was_reset
from tocsin.transport.tls_handshake import asked_for_certificate, describe_failure, peer_chain, session_id
from tocsin.transport.tls_shutdown import discard_arrived, say_goodbye

DEFAULT_WRITE_LIMIT: Final = 128
"""How many blocks may wait to be sent: as many as in the reference's queues (smp.md 9.1)."""
DEFAULT_READ_LIMIT_BYTES: Final = 65_536
"""How many bytes of whole blocks may wait to be read: 4 blocks of SMP, 128 of NTF."""

_READS_PER_WAKE_UP: Final = 32  # then yield to other connections


class ReadByOne:
    """A connection that one task reads. It is a base class: a further object would cost memory for each connection."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader: asyncio.Future[None] | None = None

    async def _wait_to_be_woken(self) -> None:
        if self._reader is not None:
            raise RuntimeError("a connection has one reader")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def wake_reader(self) -> bool:
        """Have `until_woken` return. Returns False if nobody waits there."""
        if self._reader is None or self._reader.done():
            return False
        self._reader.set_result(None)
        return True


class BlockConnection(ReadByOne):
    """A connection after its TLS handshake, which owns the socket. It has one reader and any number of writers."""

    __slots__ = (
        "_acknowledged_at_end",
        "_closed",
        "_inbox",
        "_loop",
        "_loss",
        "_out",
        "_partial",
        "_read_limit",
        "_reading",
        "_receives",
        "_sock",
        "_stuck",
        "alpn",
        "block_size",
        "blocks_received",
        "certificate_asked",
        "ended_in_order",
        "on_end",
        "peer_chain",
        "peer_host",
        "received_at",
        "session_id",
    )

    def __init__(
        self,
        sock: ssl.SSLSocket,
        *,
        block_size: int,
        peer_host: str,
        write_limit: int = DEFAULT_WRITE_LIMIT,
        read_limit_bytes: int = DEFAULT_READ_LIMIT_BYTES,
        stuck: set[BlockConnection] | None = None,
    ) -> None:
        """`sock` is non-blocking and its handshake is done. Raises TlsUnsupported, leaving it open.

        At most `write_limit` blocks wait to be sent; then `write_block` waits and `try_write_block` is False.
        At most `read_limit_bytes` of blocks (but at least one block) wait to be read; then the peer waits.
        The connection is in the set `stuck` while its peer does not read and the kernel takes no more.
        """
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._stuck = stuck
        self._out = OutgoingBlocks(
            sock,
            block_size=block_size,
            limit=write_limit,
            on_failure=self._fail,
            on_stuck=self._note_stuck,
        )
        self.block_size = block_size
        self.peer_host = peer_host
        self.session_id = session_id(sock)
        self.alpn = sock.selected_alpn_protocol()
        self.peer_chain = peer_chain(sock)
        self.certificate_asked = asked_for_certificate(sock)
        """Whether the server asked this client for its certificate."""
        self.received_at = self._loop.time()
        self.blocks_received = 0
        self._inbox: list[bytes] = []
        self._partial: bytearray | None = None
        self._read_limit = max(1, read_limit_bytes // block_size)
        self._reading = False
        self._receives = True
        self._closed: asyncio.Future[None] | None = None
        self._loss: tuple[LossReason, str] | None = None
        self._acknowledged_at_end: int | None = 0
        self.ended_in_order = False
        """Whether the peer closed the connection, and did not reset it: it had then read all that its system had."""
        self.on_end: Callable[[], None] | None = None
        """Called once, when the connection ends, for those who wait for something else than a block."""
        self._start_reading()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended: nothing can be sent."""
        return self._loss is not None

    @property
    def blocks_sent(self) -> int:
        """Blocks that the kernel has taken."""
        return self._out.blocks_sent

    @property
    def sent_at(self) -> float:
        """Loop time at which the kernel last took a block, or the connection was made."""
        return self._out.sent_at

    @property
    def write_room(self) -> int:
        """How many blocks `try_write_block` accepts now, for callers that make blocks only when there is room."""
        return self._out.room if self._loss is None and self._closed is None else 0

    @property
    def stalled_since(self) -> float | None:
        """Loop time since which the kernel has taken nothing, because the peer does not read. None if nothing waits."""
        return self._out.stalled_since

    @property
    def waiting_bytes(self) -> int:
        """Bytes of blocks that the kernel does not have yet."""
        return self._out.blocks_waiting * self.block_size

    @property
    def blocks_written(self) -> int:
        """Blocks that were queued, whether or not the kernel has taken them."""
        return self._out.blocks_sent + self._out.blocks_waiting

    @property
    def blocks_acknowledged(self) -> int | None:
        """Blocks that the peer's system has received for certain. None if our system does not report it (Linux does).

        After the end, the count at its last moment. It does not say whether the peer's program has read them: a system
        resets a connection when it throws away bytes that its program had not read (`ended_in_order`).
        """
        if self._loss is not None:
            return self._acknowledged_at_end
        missing = unacknowledged_bytes(self._sock)
        if missing is None:
            return None
        # A block is longer on the wire than in memory, so this may count too many as missing.
        return max(0, self._out.blocks_sent - -(-missing // self.block_size))

    async def read_block(self) -> bytes:
        """Return the next block. Raises ConnectionLost after the last block that arrived before the end.

        Cancelling loses nothing: the next call returns the block instead.
        """
        while (block := self.read_block_nowait()) is None:
            await self.until_woken()
        return block

    async def until_woken(self) -> None:
        """Return when a block has arrived, or `wake_reader` was called. Call it when no block is there to read.

        Raises ConnectionLost after the end.
        """
        if self._loss is not None or not self._receives:
            raise self._lost()
        await self._wait_to_be_woken()

    def read_block_nowait(self) -> bytes | None:
        """Return a block that has already arrived, or None. Never raises: `read_block` reports the end."""
        if not self._inbox:
            return None
        block = self._inbox.pop(0)
        if not self._reading:
            self._go_on_reading()
        return block

    async def write_block(self, block: bytes) -> None:
        """Queue a block, waiting in line while the queue is full. Raises ConnectionLost.

        Blocks leave in the order of the calls. When cancelled, the block was not queued.
        """
        while not self.try_write_block(block):
            await self._out.wait_for_room()

    def try_write_block(self, block: bytes) -> bool:
        """Queue a block if there is room, without waiting. Raises ConnectionLost."""
        if len(block) != self.block_size:
            raise LocalProtocolError(f"a block of {len(block)} bytes instead of {self.block_size}")
        if self._loss is not None or self._closed is not None:
            raise self._lost()
        queued = self._out.try_put(block)
        if self._loss is not None:  # sending it at once may have failed
            raise self._lost()
        return queued

    async def wait_for_room(self) -> None:
        """Wait in line until `try_write_block` accepts a block, if it is called before anything else is awaited.

        For blocks that cannot be made in advance, such as encrypted ones. Raises ConnectionLost.
        """
        await self._out.wait_for_room()
        if self._loss is not None or self._closed is not None:
            raise self._lost()

    def check_not_aborted(self) -> None:
        """Raises ConnectionLost if we closed the socket, so that nobody works on for a peer that we gave up.

        Blocks that arrived before the peer closed it are still worth the work.
        """
        if self._loss is not None and self._loss[0] is LossReason.CLOSED_LOCALLY:
            raise self._lost()

    async def drain(self) -> None:
        """Return when the kernel has all queued blocks. Raises ConnectionLost."""
        await self._out.drained()
        if self._loss is not None:
            raise self._lost()

    def stop_receiving(self) -> None:
        """Drop unread and later bytes: `read_block` raises ConnectionLost, but writing continues."""
        self._receives = False
        self._inbox.clear()
        self._go_on_reading()
        self.wake_reader()

    async def close(self, drain_for: float) -> None:
        """Send queued blocks and close_notify, then wait for the peer to close, for at most `drain_for` seconds.

        No further blocks are read or written, and pending calls raise ConnectionLost. The socket is closed when
        this returns, also when it is cancelled. Calling it again waits for the first call.
        """
        if self._loss is not None:
            return
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = self._loop.create_future()
        self.stop_receiving()
        self._out.refuse()
        try:
            async with asyncio.timeout(drain_for):
                await self._out.drained()
                if self._loss is None:
                    self._say_goodbye()
                await asyncio.shield(self._closed)
        except TimeoutError:
            pass
        finally:
            self._end(LossReason.CLOSED_LOCALLY)

    def abort(self, *, reset: bool = False) -> None:
        """Close the socket now. Queued blocks are lost, and pending calls raise ConnectionLost.

        With `reset` the peer learns that what it sent last may be lost.
        """
        if reset and self._loss is None:
            reset_when_closed(self._sock)
        self._end(LossReason.CLOSED_LOCALLY)

    def _read_ready(self) -> None:
        if self._loss is not None or not self._reading:
            return  # scheduled before reading stopped
        if self._out.needs_read:
            self._out.flush_after_read()
        waiting = len(self._inbox)
        self._read_some()
        arrived = len(self._inbox) - waiting
        if arrived > 0:
            self.blocks_received += arrived
            self.received_at = self._loop.time()
            if self.wake_reader():
                self._out.expect_answers()

    def _read_some(self) -> None:
        sock, inbox, size = self._sock, self._inbox, self.block_size
        for _ in range(_READS_PER_WAKE_UP):
            partial = self._partial
            try:
                data = sock.recv(size if partial is None else size - len(partial))
            except OSError as error:
                self._cannot_read(error)
                return
            if not data:
                self._end(LossReason.CLOSED_BY_PEER if partial is None else LossReason.CLOSED_INSIDE_BLOCK)
                return
            if partial is not None or len(data) < size:
                self._receive_part(data)
            elif self._receives:
                inbox.append(data)  # a whole block, uncopied
            if len(inbox) >= self._read_limit:
                self._stop_reading()
                return
            if not sock.pending() and not has_arrived(sock, size):
                return  # asking TLS for bytes that are not there costs an exception
        self._loop.call_soon(self._read_ready)  # bytes inside OpenSSL do not wake the loop

    def _cannot_read(self, error: OSError) -> None:
        if isinstance(error, ssl.SSLWantWriteError):
            self._stop_reading()
            self._out.when_writable(self._go_on_reading)
        elif not isinstance(error, ssl.SSLWantReadError):
            self._fail(error)

    def _receive_part(self, data: bytes) -> None:
        partial = self._partial = self._partial or bytearray()
        partial += data
        if len(partial) == self.block_size:
            self._partial = None
            if self._receives:
                self._inbox.append(bytes(partial))

    def _start_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self._read_ready)

    def _stop_reading(self) -> None:
        self._reading = False
        self._loop.remove_reader(self._sock.fileno())

    def _go_on_reading(self) -> None:
        if self._loss is not None or self._reading or len(self._inbox) > self._read_limit // 2:
            return
        self._start_reading()
        if self._sock.pending():
            self._loop.call_soon(self._read_ready)

    def _say_goodbye(self) -> None:
        try:
            say_goodbye(self._sock)
        except OSError as error:
            self._fail(error)
        else:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self._discard_ready)

    def _discard_ready(self) -> None:
        if not discard_arrived(self._sock):
            self._end(LossReason.CLOSED_LOCALLY)

    def _note_stuck(self, stuck: bool) -> None:
        if self._stuck is not None:
            if stuck:
                self._stuck.add(self)
            else:
                self._stuck.discard(self)

    def _fail(self, error: OSError) -> None:
        self._end(loss_reason(error, inside_block=self._partial is not None), describe_failure(error))

    def _end(self, reason: LossReason, detail: str = "") -> None:
        if self._loss is not None:
            return
        if self._closed is not None:
            reason, detail = LossReason.CLOSED_LOCALLY, ""
        self._acknowledged_at_end = self.blocks_acknowledged
        if reason is not LossReason.RESET and not was_reset(self._sock):
            self.ended_in_order = reason in CLOSED_BY_PEER
        self._loss = reason, detail
        if self._reading:
            self._stop_reading()
        self._out.stop()
        self._sock.close()
        self._partial = None
        if reason is LossReason.CLOSED_LOCALLY:
            self._inbox.clear()
        self.wake_reader()
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None  # no cycle is left for the garbage collector
            on_end()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _lost(self) -> BlockConnectionLost:
        reason, detail = self._loss or (LossReason.CLOSED_LOCALLY, "")
        return BlockConnectionLost(reason, detail)
