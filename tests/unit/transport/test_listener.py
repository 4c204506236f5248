"""Listening: who is served, who is not, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from tests.unit.transport.loopback import (
    HOST,
    LARGE,
    SMALL,
    blocks,
    connected,
    dialed,
    echo,
    for_servers,
    listening,
    raw_client,
    until_lost,
)
from tocsin.errors import ConnectFailed, ConnectionLost
from tocsin.transport import listener as listener_module
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.connection_loss import BlockConnectionLost, LossReason
from tocsin.transport.listener import Listener, ListenerCounts, ListenerLimits
from tocsin.transport.socket_options import KEEP_ALIVE_IDLE_SECONDS, KEEP_ALIVE_PROBES
from tocsin.transport.tls_handshake import STEPS_PER_ITERATION


@asynccontextmanager
async def silent_client(port: int) -> AsyncIterator[socket.socket]:
    """Connects and never says a word of TLS."""
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
        yield sock


async def closed_by_peer(sock: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionResetError:
        return True


async def until(listener: Listener, **expected: int) -> ListenerCounts:
    """Waits, a turn of the loop at a time, until counts are as expected; the test's time limit ends it."""
    while any(getattr(listener.counts, name) != value for name, value in expected.items()):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return listener.counts


async def echoes(connection: BlockConnection) -> bool:
    await connection.write_block(b"e" * connection.block_size)
    return await connection.read_block() == b"e" * connection.block_size


async def test_port_zero_is_replaced_by_the_one_that_is_served_on_every_address() -> None:
    async with listening(hosts=("127.0.0.1", "127.0.0.2")) as listener:
        assert listener.port != 0
        for host in ("127.0.0.1", "127.0.0.2"):
            with socket.create_connection((host, listener.port), timeout=5):
                pass


async def test_port_in_use_is_a_clear_error_that_leaves_nothing_open() -> None:
    async with listening() as listener:
        second = Listener(echo, context=for_servers(), block_size=LARGE, hosts=[HOST], port=listener.port)
        with pytest.raises(ConnectFailed, match=f"cannot listen on {HOST} port {listener.port}"):
            async with second:
                pass


async def test_active_connections_are_counted() -> None:
    async with listening() as listener:
        connections = [await dialed(listener) for _ in range(3)]
        assert all([await echoes(connection) for connection in connections])
        assert listener.counts == ListenerCounts(accepted=3, active=3)
        for connection in connections:
            await connection.close(5)
        await until(listener, active=0)


# Handshakes


async def test_handshake_that_never_comes_is_closed() -> None:
    async with (
        listening(limits=ListenerLimits(handshake_seconds=0.05)) as listener,
        silent_client(listener.port) as client,
    ):
        assert await closed_by_peer(client)
        await until(listener, handshake_timed_out=1, pending_handshakes=0)


async def test_oldest_handshake_makes_room_for_a_new_client() -> None:
    """Slow-loris: however many connect in silence, the next honest client gets in."""
    async with (
        listening(limits=ListenerLimits(max_handshakes=2, drain_seconds=1.0)) as listener,
        silent_client(listener.port) as first,
    ):
        await until(listener, pending_handshakes=1)
        async with silent_client(listener.port) as second:
            await until(listener, pending_handshakes=2)
            honest = await dialed(listener)
            assert await echoes(honest)
            assert await closed_by_peer(first)
            counts = listener.counts
            assert (counts.handshakes_dropped, counts.handshake_failed) == (1, 0)
            with pytest.raises(BlockingIOError):
                second.recv(1)
            honest.abort()


async def test_client_that_does_not_speak_tls_is_counted_as_failed() -> None:
    async with listening() as listener, silent_client(listener.port) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        await until(listener, handshake_failed=1, pending_handshakes=0)


async def test_client_that_vanishes_during_the_handshake_is_counted_as_failed() -> None:
    async with listening() as listener:
        async with silent_client(listener.port):
            await until(listener, pending_handshakes=1)
        await until(listener, handshake_failed=1, pending_handshakes=0)


async def test_handshakes_that_come_together_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is half a millisecond of cryptography; hundreds of them in a row would stall everybody."""
    steps, most = 0, 0
    do_handshake = ssl.SSLSocket.do_handshake

    def count(sock: ssl.SSLSocket, block: bool = False) -> None:
        nonlocal steps
        steps += sock.server_side
        do_handshake(sock, block)

    def begin_iteration() -> None:
        nonlocal steps, most
        most, steps = max(most, steps), 0
        watching[0] = asyncio.get_running_loop().call_soon(begin_iteration)

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", count)
    async with listening() as listener:
        watching = [asyncio.get_running_loop().call_soon(begin_iteration)]
        connections = await asyncio.gather(*(dialed(listener) for _ in range(40)))
        watching[0].cancel()
        assert all([await echoes(connection) for connection in connections])
        for connection in connections:
            connection.abort()
    assert most <= STEPS_PER_ITERATION


# Limits


async def test_connection_beyond_the_limit_is_refused_and_one_that_ends_makes_room() -> None:
    async with listening(limits=ListenerLimits(max_connections=1, drain_seconds=1.0)) as listener:
        first = await dialed(listener)
        assert await echoes(first)
        with pytest.raises(ConnectFailed):
            await dialed(listener)
        assert listener.counts.refused == 1
        await first.close(5)
        await until(listener, active=0)
        second = await dialed(listener)
        assert await echoes(second)
        second.abort()


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Whichever number is free: other threads of this process may close descriptors meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_accepting_pauses_without_descriptors_and_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "ACCEPT_PAUSE_SECONDS", 0.2)
    async with listening() as listener:
        with socket.socket() as client:
            client.setblocking(False)
            with no_descriptors_left():
                await asyncio.get_running_loop().sock_connect(client, (HOST, listener.port))
                await until(listener, accept_pauses=1)
                for _ in range(100):  # without the pause each turn of the loop would fail again
                    await asyncio.sleep(0)
                assert listener.counts.accept_pauses == 1
            await until(listener, accepted=1)
    assert "paused for 0.2 s, 1 times" in caplog.text


async def test_pauses_are_logged_once_in_a_while_with_their_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten lines a second would fill the disk of a machine that is already in trouble."""
    monkeypatch.setattr(listener_module, "ACCEPT_PAUSE_SECONDS", 0.001)
    of_another_thread = os.dup(0)
    async with listening() as listener:
        with socket.socket() as client:
            client.setblocking(False)
            with no_descriptors_left():
                await asyncio.get_running_loop().sock_connect(client, (HOST, listener.port))
                os.close(of_another_thread)
                # Not `until` a number: on a loaded machine several pauses pass between two looks.
                while listener.counts.accept_pauses < 30:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                assert len(caplog.records) == 1
                monkeypatch.setattr(listener_module, "PAUSE_LOG_SECONDS", 0.0)
                unlogged = listener.counts.accept_pauses
                while len(caplog.records) == 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await until(listener, accepted=1)
    assert f"{unlogged} times since the last such line" in caplog.records[1].getMessage()


# Peers that do not read, and peers that vanish


@asynccontextmanager
async def deaf_clients(
    count: int, limits: ListenerLimits
) -> AsyncIterator[tuple[Listener, list[BlockConnection], list[ssl.SSLSocket]]]:
    """The router's ends of connections whose clients read nothing, in the order in which they got stuck."""
    served: list[BlockConnection] = []
    finished = asyncio.Event()

    async def fill(connection: BlockConnection) -> None:
        while connection.write_room:
            await connection.write_block(b"x" * LARGE)
            await asyncio.sleep(0)
        served.append(connection)
        await finished.wait()

    async with listening(fill, limits=limits) as listener:
        clients = []
        for number in range(count):
            clients.append(await raw_client(listener.port, "smp/1"))
            while len(served) <= number:  # noqa: ASYNC110 - as `until`
                await asyncio.sleep(0.001)
        yield listener, served, clients
        for client in clients:
            client.close()
        finished.set()


async def test_a_peer_that_reads_nothing_is_closed_after_a_while() -> None:
    async with deaf_clients(1, ListenerLimits(stall_seconds=60.0, drain_seconds=0.1)) as (
        listener,
        [served],
        _,
    ):
        since = served.stalled_since
        assert since is not None
        assert listener.counts.waiting_bytes == 128 * LARGE
        listener.close_stalled(since + 59)
        assert listener.counts.stalled == 0
        listener.close_stalled(since + 60)
        assert listener.counts.stalled == 1
        assert listener.counts.waiting_bytes == 0
        with pytest.raises(ConnectionLost):
            await served.write_block(b"x" * LARGE)


async def test_a_slow_peer_that_reads_now_and_then_is_not_closed() -> None:
    """Each block that the kernel takes is progress, however many wait."""
    async with deaf_clients(1, ListenerLimits(stall_seconds=60.0, drain_seconds=0.1)) as (
        listener,
        [served],
        [client],
    ):
        before = served.stalled_since
        assert before is not None
        sent = served.blocks_sent
        while served.blocks_sent == sent:
            await asyncio.to_thread(client.recv, LARGE)
        after = served.stalled_since
        assert after is not None
        assert after > before
        listener.close_stalled(before + 60)
        assert listener.counts.stalled == 0


async def test_while_too_much_waits_the_slowest_peers_are_closed() -> None:
    budget = 2 * 128 * LARGE
    async with deaf_clients(3, ListenerLimits(max_waiting_bytes=budget, drain_seconds=0.1)) as (
        listener,
        served,
        _,
    ):
        listener.close_stalled(0.0)
        assert listener.counts.over_budget == 1
        assert listener.counts.waiting_bytes == budget
        assert [each.write_room for each in served] == [0, 0, 0]
        assert [each.stalled_since is None for each in served] == [True, False, False]


async def test_accepted_sockets_have_keep_alive_so_that_vanished_peers_free_their_place() -> None:
    async with connected() as (_client, served):
        sock = served._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_IDLE_SECONDS
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == KEEP_ALIVE_PROBES


# Handlers


async def test_failing_handler_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_on_zeros(connection: BlockConnection) -> None:
        while True:
            block = await connection.read_block()
            if not any(block):
                raise ZeroDivisionError("as a test")
            await connection.write_block(block)

    async with listening(fail_on_zeros) as listener:
        healthy, failing = await dialed(listener), await dialed(listener)
        with caplog.at_level(logging.ERROR, logger=listener_module.__name__):
            await failing.write_block(bytes(LARGE))
            with pytest.raises(ConnectionLost):
                await failing.read_block()
        await until(listener, handler_failed=1, active=1)
        assert "ZeroDivisionError" in caplog.text
        assert await echoes(healthy)
        newcomer = await dialed(listener)
        assert await echoes(newcomer)
        for connection in (healthy, newcomer):
            connection.abort()


async def test_lost_connection_is_no_failure_of_the_handler() -> None:
    async with listening() as listener:
        client = await dialed(listener)
        assert await echoes(client)
        client.abort()
        assert (await until(listener, active=0)).handler_failed == 0


async def test_what_a_handler_wrote_arrives_after_it_has_returned() -> None:
    sent = blocks(20, SMALL)

    async def write_and_return(connection: BlockConnection) -> None:
        for block in sent:
            await connection.write_block(block)

    async with listening(write_and_return, block_size=SMALL) as listener:
        client = await dialed(listener, block_size=SMALL)
        assert [await client.read_block() for _ in sent] == sent
        lost = await until_lost(client)
        assert isinstance(lost, BlockConnectionLost)
        assert lost.reason is LossReason.CLOSED_BY_PEER


# Closing


async def test_close_stops_accepting_and_lets_queued_blocks_leave() -> None:
    sent = blocks(100)
    ready = asyncio.Event()

    async def write_and_wait(connection: BlockConnection) -> None:
        for block in sent:
            await connection.write_block(block)
        ready.set()
        await connection.read_block()

    async with listening(write_and_wait) as listener:
        client = await dialed(listener)
        await ready.wait()
        async with silent_client(listener.port) as pending:
            await until(listener, pending_handshakes=1)
            closing = asyncio.create_task(listener.close(10))
            assert [await client.read_block() for _ in sent] == sent
            assert isinstance(await until_lost(client), BlockConnectionLost)
            await closing
            assert await closed_by_peer(pending)
        assert listener.counts.active == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, listener.port), timeout=5)
        await listener.close(10)


async def test_handler_that_does_not_end_is_cancelled_after_the_limit() -> None:
    cancelled = asyncio.Event()

    async def never_end(connection: BlockConnection) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with listening(never_end) as listener:
        client = await dialed(listener)
        await until(listener, active=1)
        await listener.close(0.05)
        assert cancelled.is_set()
        assert listener.counts.active == 0
        await until_lost(client)


async def test_error_inside_the_block_closes_the_listener_and_stays_what_it_was() -> None:
    clients: list[BlockConnection] = []

    async def fail_inside() -> None:
        async with listening() as listener:
            clients.append(await dialed(listener))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    await until_lost(clients[0])


async def test_closing_lets_handlers_send_the_answers_they_have() -> None:
    """Reading ends at once, but what a handler still has to say is sent."""
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def handler(connection: BlockConnection) -> None:
        block = await connection.read_block()
        asked.set()
        await go_on.wait()
        await connection.write_block(block)

    [question] = blocks(1)
    async with listening(handler) as listener:
        client = await dialed(listener)
        await client.write_block(question)
        await asked.wait()
        closing = asyncio.create_task(listener.close(5.0))
        await asyncio.sleep(0)
        go_on.set()
        assert await client.read_block() == question
        await client.close(1.0)
        await closing
