"""`tocsin smp start --workers`: several processes have the connections, and any of them may end at any time."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.adversity.test_smp_kill import SEED, SETTINGS, kill_again_and_again
from tests.adversity.test_workers import children, is_alive, soon
from tests.doubles.smp_harness import OK, SmpTestClient
from tests.doubles.smp_process import ControlClient, SmpFolders, SmpProcess
from tocsin.errors import ConnectionLost
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.recipient_commands import AcknowledgeMessage, Subscribe
from tocsin.protocol.smp.responses import MessageReceived

pytestmark = pytest.mark.timeout(180)
KILLS: Final = int(os.environ.get("TOCSIN_WORKER_KILLS", "5"))
WORKERS: Final = 2


def with_workers(folder: Path) -> SmpFolders:
    folders = SmpFolders(folder)
    folders.arguments = ("--workers", str(WORKERS))
    return folders


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[SmpProcess]:
    process = await with_workers(tmp_path).start()
    yield process
    for client in process.clients:
        client.connection.abort()
    await process.kill()


async def is_connected(client: SmpTestClient) -> bool:
    try:
        return await client.ask(Ping()) == Pong()
    except ConnectionLost:
        return False


async def clients_of_both(router: SmpProcess) -> list[SmpTestClient]:
    """Enough that each worker has some: the system chooses."""
    return [await router.connect() for _ in range(24)]


@pytest.mark.timeout(120 + 12 * KILLS)
async def test_what_was_acknowledged_survives_kills_of_workers_and_of_the_router(tmp_path: Path) -> None:
    chance = random.Random(SEED)

    async def kill(process: SmpProcess) -> None:
        """Sometimes the workers first: the router's process has yet to write down what they had passed on."""
        if chance.random() < 0.7:
            for worker in children(process.process_id):
                os.kill(worker, signal.SIGKILL)
            await asyncio.sleep(chance.uniform(0, 0.05))
        await process.kill()

    await kill_again_and_again(with_workers(tmp_path), SETTINGS, KILLS, kill)


async def test_a_worker_that_dies_takes_only_its_connections_with_it(router: SmpProcess) -> None:
    before = children(router.process_id)
    assert len(before) == WORKERS
    clients = await clients_of_both(router)
    queues = [await client.new_queue() for client in clients]
    sender = await router.connect()
    os.kill(before[0], signal.SIGKILL)
    await soon(
        lambda: len(children(router.process_id)) == WORKERS and before[0] not in children(router.process_id)
    )
    alive = [await is_connected(client) for client in clients]
    assert set(alive) == {True, False}, "the system gave all connections to one worker"
    for client, queue, has_connection in zip(clients, queues, alive, strict=True):
        if not has_connection:
            client = await router.connect()
            await client.ask(Subscribe(), queue.recipient_id, queue.key)
        if not await is_connected(sender):
            sender = await router.connect()
        assert await sender.send_message(queue, b"hello", notify=False) == OK
        recipient_id, event = await client.event()
        assert recipient_id == queue.recipient_id
        assert isinstance(event, MessageReceived)
        assert queue.body(event) == b"hello"
        assert await client.ask(AcknowledgeMessage(event.message_id), queue.recipient_id, queue.key) == OK
    assert any("worker 1 ended" in line or "worker 2 ended" in line for line in router.log)


async def test_workers_end_when_the_router_is_killed(router: SmpProcess) -> None:
    client = await router.connect()
    workers = children(router.process_id)
    os.kill(router.process_id, signal.SIGKILL)
    await soon(lambda: not any(is_alive(each) for each in workers))
    assert not await is_connected(client)


async def test_a_signal_to_all_processes_stops_them_in_order(router: SmpProcess) -> None:
    """As a service manager sends it. What was answered is on disk."""
    client = await router.connect()
    queue = await client.new_queue()
    workers = children(router.process_id)
    for each in (*workers, router.process_id):
        os.kill(each, signal.SIGTERM)
    assert await router.ended() == 0
    assert not any(is_alive(each) for each in workers)
    assert not any("ERROR" in line for line in router.log), router.log
    folders = router.folders
    again = await folders.start()
    try:
        client = await again.connect()
        await client.ask(Subscribe(), queue.recipient_id, queue.key)
        assert await again.stop() == 0
    finally:
        await again.kill()


async def test_the_operator_sees_the_workers(router: SmpProcess) -> None:
    await clients_of_both(router)
    operator = await ControlClient.connect(router.control_port)
    try:
        operator.say("server-info")
        lines = [await operator.line()]
        while "worker_2" not in lines[-1]:
            lines.append(await operator.line())
    finally:
        await operator.close()
    found = [line for line in lines if line.startswith("worker_")]
    assert len(found) == WORKERS
    for line, process in zip(found, children(router.process_id), strict=True):
        assert f"process {process}, " in line


@pytest.mark.parametrize("count", ["0", "65"])
async def test_a_number_of_workers_that_cannot_be_is_refused(tmp_path: Path, count: str) -> None:
    code, errors = await SmpFolders(tmp_path).outcome("--workers", count)
    assert code == 1
    assert "--workers must be from 1 to 64" in errors


async def test_a_port_in_use_is_named(tmp_path: Path, router: SmpProcess) -> None:
    code, errors = await with_workers(tmp_path / "another").outcome(port=router.port)
    assert code != 0
    assert f"port {router.port}" in errors


async def test_connections_wait_for_a_worker_that_starts_again(router: SmpProcess) -> None:
    """The sockets stay open, so nobody is refused meanwhile."""
    for worker in children(router.process_id):
        os.kill(worker, signal.SIGKILL)
    async with asyncio.timeout(30):
        client = await router.connect()
        assert await is_connected(client)
