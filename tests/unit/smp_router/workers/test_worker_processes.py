"""The workers of a router: their number is kept, their bounds hold for all of them together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import SmpHarness, smp_router, until
from tests.doubles.worker_tasks import start_workers_as_tasks
from tocsin.errors import ConnectFailed, ConnectionLost
from tocsin.operate.router_listeners import listener_metrics
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import RouterSession
from tocsin.smp_router.workers import worker_link, worker_processes
from tocsin.smp_router.workers.worker_processes import added, worker_metrics
from tocsin.transport.listener import ListenerCounts


def metric(router: SmpHarness, name: str) -> float:
    running = router.running
    [found] = [
        each
        for each in listener_metrics("smp", running.listeners, running.router.turns)
        if each.name == f"smp_listener_{name}"
    ]
    return found.samples[0].value


async def test_a_worker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_link, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(worker_processes, "_WATCH_SECONDS", 0.2)
    async with smp_router(workers=1) as router:
        client = await router.connect()
        [before] = router.running.workers()
        assert before.process_id is not None
        os.kill(before.process_id, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while (now := router.running.workers()[0]).restarts == 0 or now.process_id is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert now.process_id != before.process_id
        with pytest.raises(ConnectionLost):
            await client.ask(Ping())
        assert await (await router.connect()).ask(Ping()) == Pong()


async def test_a_worker_that_ends_at_once_fails_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConnectFailed, match="worker 1 did not start"):
        async with smp_router(workers=1):
            pass


async def test_all_workers_together_have_no_more_connections_than_the_router_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start_workers_as_tasks(monkeypatch)
    async with smp_router(workers=2, max_connections=3) as router:
        clients = [await router.connect() for _ in range(3)]
        with pytest.raises((ConnectionLost, ConnectFailed, TimeoutError)):
            await (await router.connect()).ask(Ping())
        assert [await client.ask(Ping()) for client in clients] == [Pong()] * 3
        await until(lambda: metric(router, "refused") == 1)
        await clients[0].close()
        await until(lambda: sum(each.connections for each in router.running.workers()) == 2)
        assert await (await router.connect()).ask(Ping()) == Pong()


async def test_counts_of_all_workers_are_added_and_survive_them(monkeypatch: pytest.MonkeyPatch) -> None:
    start_workers_as_tasks(monkeypatch)
    monkeypatch.setattr(worker_processes, "FIRST_DELAY", 0.0)
    async with smp_router(workers=2) as router:
        _, writer = await asyncio.open_connection(HOST, router.running.ports[0])
        writer.write(b"no TLS at all" * 10)
        await writer.drain()
        writer.close()
        for _ in range(4):
            await router.connect()
        await until(lambda: metric(router, "accepted") == 5 and metric(router, "handshake_failed") == 1)
        for worker in router.running._workers._workers:  # type: ignore[union-attr]
            assert worker._link is not None
            worker._link.close()
        await until(lambda: [each.restarts for each in router.running.workers()] == [1, 1])
        await router.connect()
        await until(lambda: metric(router, "accepted") == 6)
        metrics = list(worker_metrics(router.running.workers()))
        assert {sample.labels["worker"] for each in metrics for sample in each.samples} == {"1", "2"}


async def test_a_defect_in_a_worker_ends_the_connection_at_both_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start_workers_as_tasks(monkeypatch)

    def defect(_session: RouterSession, _block: bytes) -> bytes:
        raise RuntimeError("a defect")

    async with smp_router(workers=1) as router:
        client = await router.connect()
        monkeypatch.setattr(RouterSession, "content_of", defect)
        with pytest.raises(ConnectionLost):
            await client.ask(Ping())
        await until(lambda: not router.running.router.peers)
    assert "serving a connection failed" in caplog.text


def test_counts_are_added_field_by_field() -> None:
    assert added(
        ListenerCounts(accepted=1, active=2), ListenerCounts(accepted=3, refused=4)
    ) == ListenerCounts(accepted=4, active=2, refused=4)
    assert added() == ListenerCounts()
