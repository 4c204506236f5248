"""A worker's connection behaves like one of the router's own: bounded in both directions, with one end."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.errors import ConnectionLost
from tocsin.smp_router.workers.messages import EndedConnection, FrameKind, OpenedConnection, Progress
from tocsin.smp_router.workers.worker_connection import WorkerConnection

LIMIT = 4
OPENED = OpenedConnection("smp/1", 18, b"session", None, None, None, ())


class Out:
    """The channel, which keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[FrameKind, bytes]] = []
        self.is_full = False
        self.waiting: list[WorkerConnection] = []

    def send(self, kind: FrameKind, number: int, content: bytes = b"") -> None:
        assert number == 7
        self.sent.append((kind, content))

    def wants_room(self, connection: WorkerConnection) -> None:
        self.waiting.append(connection)


def connection_on(out: Out) -> WorkerConnection:
    return WorkerConnection(out, 7, OPENED, write_limit=LIMIT)


async def test_no_more_is_sent_than_may_wait_at_the_worker() -> None:
    out = Out()
    connection = connection_on(out)
    for number in range(LIMIT):
        assert connection.write_room == LIMIT - number
        assert connection.try_write_block(b"%d" % number)
    assert not connection.try_write_block(b"too many")
    assert connection.write_room == 0
    connection.progressed(Progress(3, None))
    assert connection.write_room == 3
    assert connection.blocks_written == LIMIT
    assert out.sent == [(FrameKind.SEND, b"%d" % number) for number in range(LIMIT)]


async def test_writers_wait_in_line() -> None:
    out, order = Out(), list[int]()
    connection = connection_on(out)
    for _ in range(LIMIT):
        connection.try_write_block(b"")

    async def write(number: int) -> None:
        await connection.wait_for_room()
        assert connection.try_write_block(b"")
        order.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(write(number))
        await asyncio.sleep(0)
        for taken in range(1, 7):
            assert connection.write_room == 0  # nobody overtakes those who wait
            connection.progressed(Progress(taken, None))
            for _ in range(4):
                await asyncio.sleep(0)
            assert order == list(range(taken))


async def test_nothing_is_sent_while_too_much_waits_for_the_worker() -> None:
    out = Out()
    connection = connection_on(out)
    out.is_full = True
    assert not connection.try_write_block(b"")
    waiting = asyncio.create_task(connection.wait_for_room())
    await asyncio.sleep(0)
    assert out.waiting == [connection]
    out.is_full = False
    connection.room_may_have_come()
    await waiting
    assert connection.try_write_block(b"")


async def test_the_worker_hears_that_blocks_were_read() -> None:
    out = Out()
    connection = connection_on(out)
    for number in range(5):
        connection.received(b"%d" % number)
    assert [await connection.read_block() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    assert out.sent == [(FrameKind.CONSUMED, b"\x02")] * 2
    assert connection.read_block_nowait() == b"4"
    assert connection.read_block_nowait() is None


async def test_blocks_that_arrived_before_the_end_are_still_read() -> None:
    connection = connection_on(Out())
    connection.received(b"last")
    connection.ended(EndedConnection(True, True, Progress(0, 0)))
    connection.check_not_aborted()
    assert await connection.read_block() == b"last"
    with pytest.raises(ConnectionLost, match="closed by the peer"):
        await connection.read_block()
    with pytest.raises(ConnectionLost):
        connection.try_write_block(b"")
    assert connection.ended_in_order


async def test_a_router_that_stops_may_still_answer() -> None:
    out = Out()
    connection = connection_on(out)
    connection.ended(EndedConnection(False, False, Progress(0, 0)))
    with pytest.raises(ConnectionLost):
        await connection.read_block()
    assert connection.try_write_block(b"the answer")
    assert out.sent == [(FrameKind.SEND, b"the answer")]


@pytest.mark.parametrize("how", ["abort", "worker_lost"])
async def test_the_end_wakes_all_who_wait(how: str) -> None:
    out = Out()
    connection = connection_on(out)
    for _ in range(LIMIT):
        connection.try_write_block(b"")
    waiting = [asyncio.create_task(connection.wait_for_room()) for _ in range(2)]
    reading = asyncio.create_task(connection.read_block())
    await asyncio.sleep(0)
    getattr(connection, how)()
    connection.received(b"too late")
    for each in (*waiting, reading):
        with pytest.raises(ConnectionLost):
            await each
    assert ((FrameKind.ABORT, b"") in out.sent) is (how == "abort")
    if how == "abort":
        with pytest.raises(ConnectionLost):
            connection.check_not_aborted()
    assert not connection.ended_in_order


async def test_what_the_peer_acknowledged_is_reported_once_somebody_asks() -> None:
    out = Out()
    connection = connection_on(out)
    assert connection.blocks_acknowledged == 0  # not None, which means that no system can tell
    assert connection.blocks_acknowledged == 0
    assert out.sent == [(FrameKind.WATCH, b"")]
    connection.progressed(Progress(2, 1))
    assert connection.blocks_acknowledged == 1
    connection.ended(EndedConnection(True, False, Progress(2, 2)))
    assert connection.blocks_acknowledged == 2
