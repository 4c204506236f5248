"""Blocks over a real TLS connection: order, bounds, ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from tests.unit.transport.loopback import (
    HOST,
    LARGE,
    SMALL,
    blocks,
    connected,
    dialed,
    echo,
    listening,
    raw_client,
    until_lost,
)
from tocsin.errors import ConnectionLost, LocalProtocolError
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.connection_loss import BlockConnectionLost, LossReason
from tocsin.transport.listener import ListenerLimits

# More than loopback sockets buffer, so that a peer that does not read is felt.
PLENTY = 4096


async def fill(connection: BlockConnection, supply: list[bytes]) -> int:
    """Writes without waiting until no more is taken, with turns for the loop to flush; the number taken."""
    taken = refused = 0
    while refused < 100:
        if connection.try_write_block(supply[taken]):
            taken, refused = taken + 1, 0
        else:
            refused += 1
            await asyncio.sleep(0)
    return taken


class CountingSocket:
    """Passes everything to a TLS socket and notes what is sent in one call."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.sent: list[Any] = []

    def send(self, data: Any) -> int:
        self.sent.append(data)
        return self._sock.send(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class MoodySocket(CountingSocket):
    """Raises what is on its lists before it works again; takes nothing while it is clogged."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        self.on_send: Callable[[Any], None] | None = None
        self.clogged = False
        self.send_moods: list[Exception | int] = []
        self.recv_moods: list[Exception] = []

    def send(self, data: Any) -> int:
        if self.on_send is not None:
            self.on_send(data)
        if self.clogged:
            raise ssl.SSLWantWriteError
        if self.send_moods:
            mood = self.send_moods.pop(0)
            if isinstance(mood, Exception):
                raise mood
            data = data[:mood]
        return super().send(data)

    def recv(self, size: int) -> bytes:
        if self.recv_moods:
            raise self.recv_moods.pop(0)
        return self._sock.recv(size)


def with_moods(connection: BlockConnection) -> MoodySocket:
    moody = MoodySocket(connection._sock)
    connection._sock = connection._out._sock = cast(ssl.SSLSocket, moody)
    return moody


def clog(connection: BlockConnection) -> MoodySocket:
    """Makes the kernel seem full and the connection's queue be so."""
    moody = with_moods(connection)
    moody.clogged = True
    while connection.try_write_block(b"c" * connection.block_size):
        pass
    return moody


@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_blocks_arrive_whole_and_in_order(size: int) -> None:
    async with connected(block_size=size) as (client, router):
        sent = blocks(300, size)

        async def write() -> None:
            for block in sent:
                await client.write_block(block)

        writing = asyncio.create_task(write())
        assert [await router.read_block() for _ in sent] == sent
        await writing
        assert (client.blocks_sent, router.blocks_received) == (300, 300)


async def test_block_of_another_size_is_not_sent() -> None:
    async with connected() as (client, _):
        with pytest.raises(LocalProtocolError, match="100 bytes"):
            client.try_write_block(bytes(100))
        with pytest.raises(LocalProtocolError):
            await client.write_block(bytes(LARGE + 1))


async def test_arrived_blocks_can_be_taken_without_waiting() -> None:
    async with connected(block_size=SMALL) as (client, router):
        sent = blocks(5, SMALL)
        assert all(client.try_write_block(block) for block in sent)
        taken = [await router.read_block()]
        while (block := router.read_block_nowait()) is not None:
            taken.append(block)
        assert taken == sent
        assert router.read_block_nowait() is None


async def test_times_and_counts_tell_the_last_blocks() -> None:
    async with connected() as (client, router):
        made = client.sent_at
        await client.write_block(bytes(LARGE))
        await router.read_block()
        assert client.sent_at > made
        assert router.received_at >= client.sent_at
        assert (client.blocks_sent, client.blocks_received) == (1, 0)


# Small blocks share records


def watch_sending(connection: BlockConnection) -> CountingSocket:
    watched = CountingSocket(connection._sock)
    connection._out._sock = cast(ssl.SSLSocket, watched)
    return watched


async def test_small_blocks_written_together_leave_in_full_records() -> None:
    async with connected(block_size=SMALL) as (client, router):
        watched = watch_sending(client)
        sent = blocks(70, SMALL)
        assert all(client.try_write_block(block) for block in sent)
        assert [await router.read_block() for _ in sent] == sent
        assert [len(data) // SMALL for data in watched.sent] == [32, 32, 6]


async def test_large_block_is_sent_at_once_and_uncopied() -> None:
    async with connected() as (client, _):
        watched = watch_sending(client)
        block = bytes(LARGE)
        client.try_write_block(block)
        assert len(watched.sent) == 1
        assert watched.sent[0] is block
        assert client.blocks_sent == 1


# Back-pressure


@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_peer_that_does_not_read_fills_only_the_bounded_queue(size: int) -> None:
    supply = blocks(PLENTY * LARGE // size, size)
    async with connected(block_size=size, write_limit=8) as (client, router):
        taken = await fill(client, supply)
        assert taken < len(supply)
        assert taken - client.blocks_sent <= 8
        waiting = asyncio.create_task(client.write_block(supply[taken]))
        # The router holds no more than its own bound while nobody reads there.
        assert router.blocks_received <= 65_536 // size
        # When it reads again everything arrives, in order.
        assert [await router.read_block() for _ in range(taken + 1)] == supply[: taken + 1]
        await waiting


async def test_same_buffer_is_offered_again_when_the_socket_was_full() -> None:
    async with connected(block_size=SMALL, write_limit=8) as (client, router):
        moody = with_moods(client)
        moody.send_moods = [ssl.SSLWantWriteError()] * 3
        sent = blocks(8, SMALL)
        offered: list[Any] = []
        moody.on_send = offered.append
        assert all(client.try_write_block(block) for block in sent)
        assert [await router.read_block() for _ in sent] == sent
        assert len(offered) == 4
        assert all(data is offered[0] for data in offered)


async def test_inbound_bound_is_kept_and_reading_goes_on_after_it() -> None:
    async with connected(block_size=SMALL) as (client, router):
        router._read_limit = 4
        sent = blocks(64, SMALL)
        for block in sent:
            await client.write_block(block)
        await client.drain()
        first = await router.read_block()
        for _ in range(50):
            await asyncio.sleep(0)
        assert router.blocks_received <= 1 + 4
        assert [first, *[await router.read_block() for _ in sent[1:]]] == sent


async def test_writers_that_wait_are_served_in_order() -> None:
    async with connected(write_limit=2) as (client, router):
        moody = clog(client)
        sent = blocks(20)
        waiting = [asyncio.create_task(client.write_block(block)) for block in sent]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        moody.clogged = False
        received = [await router.read_block() for _ in range(2 + 20)]
        assert received[2:] == sent
        await asyncio.gather(*waiting)


async def test_nobody_is_overtaken_by_one_who_does_not_wait() -> None:
    async with connected(write_limit=2) as (client, router):
        moody = clog(client)
        waiting = [asyncio.create_task(client.write_block(block)) for block in blocks(4)]
        await asyncio.sleep(0)
        moody.clogged = False
        client._out.flush()  # there is room now, and it is granted to those who wait
        assert not client.try_write_block(b"x" * LARGE)
        received = [await router.read_block() for _ in range(2 + 4)]
        assert received[2:] == blocks(4)
        await asyncio.gather(*waiting)


async def test_room_that_was_waited_for_is_there_for_each_of_many() -> None:
    """Each makes its block only when there is room, and finds the room still there."""
    made: list[bytes] = []
    sent = blocks(30)

    async def make_and_write(connection: BlockConnection) -> None:
        await connection.wait_for_room()
        made.append(sent[len(made)])
        assert connection.try_write_block(made[-1])

    async with connected(write_limit=3) as (client, router):
        moody = clog(client)
        waiting = [asyncio.create_task(make_and_write(client)) for _ in sent]
        await asyncio.sleep(0)
        assert not made
        moody.clogged = False
        received = [await router.read_block() for _ in range(3 + 30)]
        await asyncio.gather(*waiting)
        assert received[3:] == sent


async def test_room_granted_but_not_used_goes_to_the_next_in_line() -> None:
    async with connected(write_limit=1) as (client, router):
        moody = clog(client)
        unused = [asyncio.create_task(client.wait_for_room()) for _ in range(5)]
        writing = asyncio.create_task(client.write_block(bytes(LARGE)))
        await asyncio.sleep(0)
        moody.clogged = False
        await asyncio.gather(writing, *unused)
        assert [await router.read_block() for _ in range(2)] == [b"c" * LARGE, bytes(LARGE)]


async def test_writer_cancelled_while_waiting_writes_nothing_and_frees_its_place() -> None:
    async with connected(write_limit=1) as (client, router):
        moody = clog(client)
        waits, granted, other = (
            asyncio.create_task(client.write_block(letter * LARGE)) for letter in (b"1", b"2", b"3")
        )
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        moody.clogged = False
        client._out.flush()  # grants the room to the second, which is cancelled before it runs
        granted.cancel()
        assert [await router.read_block() for _ in range(2)] == [b"c" * LARGE, b"3" * LARGE]
        await other
        assert waits.cancelled()
        assert granted.cancelled()
        assert client._out.room == 1


async def test_close_ends_those_who_wait_for_room() -> None:
    async with connected(write_limit=1) as (client, _):
        clog(client)
        waiting = [
            asyncio.create_task(client.wait_for_room()),
            asyncio.create_task(client.write_block(bytes(LARGE))),
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.close(5))
        for task in waiting:
            with pytest.raises(ConnectionLost):
                await task
        assert not closing.done()
        closing.cancel()


async def test_drain_returns_when_everything_is_with_the_kernel() -> None:
    async with connected(block_size=SMALL) as (client, router):
        for block in blocks(10, SMALL):
            client.try_write_block(block)
        assert client.blocks_sent == 0
        await client.drain()
        assert client.blocks_sent == 10
        await router.read_block()


# Parts


async def test_block_fed_byte_by_byte_is_put_together() -> None:
    async with listening(echo, block_size=SMALL) as listener:
        tls = await raw_client(listener.port)
        block = bytes(range(256)) * 2

        def converse() -> bytes:
            for byte in block:
                tls.send(bytes((byte,)))
            received = b""
            while len(received) < SMALL:
                received += tls.recv(SMALL)
            return received

        with tls:
            assert await asyncio.to_thread(converse) == block


@pytest.mark.parametrize("part", [1000, LARGE - 1, LARGE + 1, 40_000])
async def test_records_need_not_match_blocks(part: int) -> None:
    sent = b"".join(blocks(10))
    async with listening(echo) as listener:
        tls = await raw_client(listener.port)

        def converse() -> bytes:
            received = b""
            for start in range(0, len(sent), part):
                tls.sendall(sent[start : start + part])
            while len(received) < len(sent):
                received += tls.recv(LARGE)
            return received

        with tls:
            assert await asyncio.to_thread(converse) == sent


async def test_many_blocks_in_one_record_are_all_delivered() -> None:
    """More than one wake-up reads: what is left lies inside OpenSSL, of which the loop knows nothing."""
    received: list[bytes] = []
    complete = asyncio.Event()

    async def collect(connection: BlockConnection) -> None:
        while True:
            received.append(await connection.read_block())
            if len(received) == 256:
                complete.set()

    async with listening(collect, block_size=64) as listener:
        tls = await raw_client(listener.port)
        with tls:
            sent = blocks(256, 64)
            await asyncio.to_thread(tls.sendall, b"".join(sent))
            await complete.wait()
            assert received == sent


# Ends


async def lost_after(action: Callable[[ssl.SSLSocket], None], *, before: bytes = b"") -> BlockConnectionLost:
    """How a router's reading ends when a raw client sends some bytes and then does something."""
    ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()

    async def note(connection: BlockConnection) -> None:
        ended.set_result(await until_lost(connection))

    async with listening(note, block_size=SMALL) as listener:
        tls = await raw_client(listener.port)
        if before:
            await asyncio.to_thread(tls.sendall, before)
        await asyncio.to_thread(action, tls)
        lost = await ended
        tls.close()
    assert isinstance(lost, BlockConnectionLost)
    return lost


def shut_down(tls: ssl.SSLSocket) -> None:
    tls.setblocking(False)
    with suppress(OSError):  # our close_notify leaves; the router's is not there yet
        tls.unwrap()


def cut(tls: ssl.SSLSocket) -> None:
    socket.socket.shutdown(tls, socket.SHUT_RDWR)


def reset(tls: ssl.SSLSocket) -> None:
    tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    tls.close()


def send_garbage(tls: ssl.SSLSocket) -> None:
    socket.socket.send(tls, b"\x17\x03\x03\x00\x20" + bytes(32))


@pytest.mark.parametrize("close", [shut_down, cut], ids=["close_notify", "FIN"])
@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (b"", LossReason.CLOSED_BY_PEER),
        (bytes(SMALL), LossReason.CLOSED_BY_PEER),
        (b"x", LossReason.CLOSED_INSIDE_BLOCK),
        (bytes(SMALL + 511), LossReason.CLOSED_INSIDE_BLOCK),
    ],
)
async def test_close_by_the_peer_is_told_apart_by_where_it_happens(
    close: Callable[[ssl.SSLSocket], None], before: bytes, reason: LossReason
) -> None:
    assert (await lost_after(close, before=before)).reason is reason


async def test_broken_tls_has_its_own_reason() -> None:
    assert (await lost_after(send_garbage)).reason is LossReason.TLS_ERROR


async def test_reset_has_its_own_reason_where_python_tells_it() -> None:
    """The ssl module of Python 3.11 reports ECONNRESET as an end of the stream."""
    told = (
        {LossReason.RESET} if sys.version_info >= (3, 13) else {LossReason.RESET, LossReason.CLOSED_BY_PEER}
    )
    assert (await lost_after(reset)).reason in told


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what was acknowledged")
@pytest.mark.parametrize(("end", "in_order"), [(shut_down, True), (cut, True), (reset, False)])
async def test_what_the_peer_had_is_known_after_the_end(
    end: Callable[[ssl.SSLSocket], None], in_order: bool
) -> None:
    """A system that resets the connection may have thrown away what was not read."""
    served: asyncio.Future[BlockConnection] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def write_two(connection: BlockConnection) -> None:
        for block in blocks(2, SMALL):
            await connection.write_block(block)
        served.set_result(connection)
        await until_lost(connection)
        ended.set()

    async with listening(write_two, block_size=SMALL) as listener:
        tls = await raw_client(listener.port)
        connection = await served
        while connection.blocks_acknowledged != 2:  # noqa: ASYNC110 - systems acknowledge in their own time
            await asyncio.sleep(0.001)
        got = 0
        while got < 2 * SMALL:
            got += len(await asyncio.to_thread(tls.recv, SMALL))
        await asyncio.to_thread(end, tls)
        await ended.wait()
        assert (connection.blocks_acknowledged, connection.ended_in_order) == (2, in_order)
        tls.close()


async def test_blocks_that_arrived_before_the_end_are_still_read() -> None:
    async with connected(block_size=SMALL) as (client, router):
        sent = blocks(3, SMALL)
        for block in sent:
            await router.write_block(block)
        await client.read_block()
        await router.close(1)
        assert [await client.read_block() for _ in sent[1:]] == sent[1:]
        with pytest.raises(BlockConnectionLost) as lost:
            await client.read_block()
        assert lost.value.reason is LossReason.CLOSED_BY_PEER
        with pytest.raises(ConnectionLost):
            client.try_write_block(bytes(SMALL))


@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_graceful_close_delivers_everything(size: int) -> None:
    """Also while the peer is sending: unread bytes would make the kernel reset the connection."""
    supply = blocks(PLENTY * LARGE // size, size)
    async with connected(block_size=size, write_limit=64) as (client, router):
        assert router.try_write_block(bytes(size))
        taken = await fill(client, supply)
        closing = asyncio.create_task(client.close(10))
        received = [await router.read_block() for _ in range(taken)]
        assert received == supply[:taken]
        lost = await until_lost(router)
        assert isinstance(lost, BlockConnectionLost)
        assert lost.reason is LossReason.CLOSED_BY_PEER
        await closing


async def test_graceful_close_ends_in_time_when_the_peer_does_not_read() -> None:
    async with connected(write_limit=8) as (client, _):
        clog(client)
        await client.close(0.05)
        with pytest.raises(BlockConnectionLost) as lost:
            await client.read_block()
        assert lost.value.reason is LossReason.CLOSED_LOCALLY


async def test_close_says_close_notify() -> None:
    async def close_at_once(connection: BlockConnection) -> None:
        await connection.close(1)

    async with listening(close_at_once) as listener:
        tls = await raw_client(listener.port)
        cast(Any, tls).suppress_ragged_eofs = False  # an end without close_notify would raise
        assert await asyncio.to_thread(tls.recv, 1) == b""
        tls.close()


async def test_close_and_abort_may_be_repeated() -> None:
    async with connected() as (client, _):
        await asyncio.gather(client.close(1), client.close(1))
        await client.close(1)
        client.abort()
        assert client._sock.fileno() == -1


async def test_abort_ends_pending_calls() -> None:
    async with connected(write_limit=1) as (client, _):
        clog(client)
        pending = [
            asyncio.create_task(client.read_block()),
            asyncio.create_task(client.write_block(bytes(LARGE))),
            asyncio.create_task(client.drain()),
        ]
        await asyncio.sleep(0)
        client.abort()
        for task in pending:
            with pytest.raises(ConnectionLost):
                await task


async def test_cancelled_close_still_closes() -> None:
    async with connected(write_limit=1) as (client, router):
        clog(client)
        closing = asyncio.create_task(client.close(60))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client._sock.fileno() == -1
        await until_lost(router)


async def test_cancelled_read_leaves_the_connection_usable() -> None:
    async with connected() as (client, router):
        reading = asyncio.create_task(router.read_block())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        sent = blocks(2)
        await client.write_block(sent[0])
        assert await router.read_block() == sent[0]
        # Cancelled in the instant in which its block has arrived: the block is not lost.
        reading = asyncio.create_task(router.read_block())
        await asyncio.sleep(0)
        await client.write_block(sent[1])
        while router.blocks_received < 2:  # noqa: ASYNC110 - the instant is between two events
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await router.read_block() == sent[1]


async def test_second_reader_is_a_mistake_that_is_told() -> None:
    async with connected() as (client, _):
        first = asyncio.create_task(client.read_block())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await client.read_block()
        first.cancel()


# What OpenSSL rarely asks for


async def test_write_that_must_read_first_is_tried_again_when_bytes_arrive() -> None:
    async with connected() as (client, router):
        with_moods(client).send_moods = [ssl.SSLWantReadError()]
        assert client.try_write_block(bytes(LARGE))
        assert client.blocks_sent == 0
        await router.write_block(b"x" * LARGE)
        assert await client.read_block() == b"x" * LARGE
        assert await router.read_block() == bytes(LARGE)


async def test_read_that_must_write_first_is_tried_again_when_that_is_possible() -> None:
    async with connected() as (client, router):
        with_moods(client).recv_moods = [ssl.SSLWantWriteError()]
        sent = blocks(2)
        for block in sent:
            await router.write_block(block)
        assert [await client.read_block() for _ in sent] == sent


async def test_read_that_must_write_first_survives_a_flush_in_between() -> None:
    async with connected() as (client, router):
        with_moods(client).recv_moods = [ssl.SSLWantWriteError()]
        client._read_ready()
        assert client.try_write_block(bytes(LARGE))
        client._out.flush()
        await router.write_block(b"x" * LARGE)
        assert await client.read_block() == b"x" * LARGE
        assert await router.read_block() == bytes(LARGE)


async def test_partial_write_is_finished() -> None:
    async with connected() as (client, router):
        with_moods(client).send_moods = [1000, ssl.SSLWantWriteError(), 1, 15_000]
        sent = blocks(2)
        for block in sent:
            client.try_write_block(block)
        assert [await router.read_block() for _ in sent] == sent
        assert client.blocks_sent == 2


async def test_failed_write_ends_the_connection_for_writer_and_reader() -> None:
    async with connected() as (client, _):
        reading = asyncio.create_task(client.read_block())
        await asyncio.sleep(0)
        with_moods(client).send_moods = [ConnectionResetError("gone")]
        with pytest.raises(ConnectionLost):
            await client.write_block(bytes(LARGE))
        with pytest.raises(ConnectionLost):
            await reading


# Many


async def test_two_hundred_connections_at_once() -> None:
    async with listening(echo, block_size=SMALL, limits=ListenerLimits(drain_seconds=1.0)) as listener:

        async def converse(number: int) -> None:
            connection = await dialed(listener, block_size=SMALL)
            for block in (bytes((number,)) * SMALL, bytes(SMALL)):
                await connection.write_block(block)
                assert await connection.read_block() == block
            await connection.close(5)

        await asyncio.gather(*(converse(number) for number in range(200)))
        assert listener.counts.accepted == 200
        assert listener.counts.handshake_failed == 0


async def test_client_sockets_have_keep_alive_and_no_delay() -> None:
    async with connected() as (client, router):
        sock = client._sock
        assert sock.getpeername()[0] == client.peer_host == HOST
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 15
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4
        for end in (client, router):
            assert end._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
