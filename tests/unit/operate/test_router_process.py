"""The process around a router: what is opened, what is written, and in which order all of it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.routers import HOST
from tocsin.errors import StoreError
from tocsin.operate.control_port import LinePort
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import LIVE_PATH, METRICS_PATH, READY_PATH
from tocsin.operate.process import STOP_SIGNALS
from tocsin.operate.router_process import Upkeep, router_process, run_router
from tocsin.operate.statistics_files import KeptStatistics
from tocsin.smp_router.settings.settings import SmpSettings

SETTINGS = SmpSettings(store=None, control_port_admin_password="secret")
METRICS = SETTINGS.prometheus_file
SECONDS = 5.0


class Statistics(KeptStatistics):
    """Notes when it is loaded and saved."""

    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def load(self) -> None:
        self.noted.append("statistics loaded")

    def save(self) -> None:
        self.noted.append("statistics saved")


class Operator:
    def __init__(self) -> None:
        self.problem: str | None = None

    async def metrics(self) -> str:
        return "a 1\n"

    async def metrics_file(self) -> str:
        return "a 1 2\n"

    async def why_not_ready(self) -> str | None:
        return self.problem


class Session:
    ended = False

    async def answer(self, line: str) -> str:
        self.ended = True
        return f"you said {line.strip()}"


@asynccontextmanager
async def noting(noted: list[str], name: str) -> AsyncIterator[str]:
    noted.append(f"{name} opened")
    try:
        yield name
    finally:
        noted.append(f"{name} closed")


def upkeep(maintain: asyncio.Event | None = None) -> Upkeep:
    async def run() -> None:
        assert maintain is not None
        maintain.set()

    return Upkeep(None if maintain is None else run, 0.0)


def control_port(_passwords: object, port: int) -> LinePort:
    return LinePort(Session, greeting="hello", port=port)


async def test_statistics_are_loaded_before_the_router_starts_and_saved_after_it_ends() -> None:
    noted: list[str] = []
    async with router_process(SETTINGS, Statistics(noted)) as process:
        assert await process.enter(noting(noted, "router")) == "router"
        await process.open_to(Operator(), control_port, upkeep())
        assert process.event_log is None
    assert noted == ["statistics loaded", "router opened", "router closed", "statistics saved"]


async def test_pages_and_control_port_answer_while_the_router_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    operator = Operator()
    async with router_process(
        replace(SETTINGS, control_port=0, prometheus_port=0), Statistics([])
    ) as process:
        await process.open_to(operator, control_port, upkeep())
        control, metrics = (record.args for record in caplog.records[-2:])
        assert isinstance(control, tuple)
        assert isinstance(metrics, tuple)
        port = int(str(metrics[1]))
        assert await get_page(HOST, port, METRICS_PATH, SECONDS) == (200, "a 1\n")
        assert await get_page(HOST, port, LIVE_PATH, SECONDS) == (200, "ok\n")
        assert await get_page(HOST, port, READY_PATH, SECONDS) == (200, "ok\n")
        operator.problem = "the store fails"
        assert await get_page(HOST, port, READY_PATH, SECONDS) == (503, "the store fails\n")
        reader, writer = await asyncio.open_connection(HOST, int(str(control[0])))
        writer.write(b"help\n")
        assert await reader.read() == b"hello\nyou said help\n"
        writer.close()


async def test_upkeep_goes_on_until_the_process_ends(tmp_path: Path) -> None:
    before, maintained = asyncio.all_tasks(), asyncio.Event()
    settings = replace(SETTINGS, store=tmp_path, prometheus_interval=0.001)
    async with router_process(settings, Statistics([])) as process:
        await process.open_to(Operator(), control_port, upkeep(maintained))
        async with asyncio.timeout(SECONDS):
            await maintained.wait()
            while not (tmp_path / METRICS).exists():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.001)
        assert (tmp_path / METRICS).read_text() == "a 1 2\n"
    assert asyncio.all_tasks() == before


@pytest.mark.usefixtures("without_nohup")
@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_a_router_serves_until_a_signal_and_then_its_store_is_closed(number: signal.Signals) -> None:
    noted: list[str] = []

    def announce(router: str) -> None:
        noted.append(f"{router} announced")
        os.kill(os.getpid(), number)

    async with asyncio.timeout(SECONDS):
        await run_router(
            noting(noted, "store"),
            lambda _store: noting(noted, "router"),
            maintain=None,
            announce=announce,
            lost=never,
            log_tls_errors=False,
        )
    assert noted == ["store opened", "router opened", "router announced", "router closed", "store closed"]


async def never(_store: str) -> StoreError:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_store_that_has_failed_for_good_ends_the_router_with_an_error() -> None:
    noted: list[str] = []

    async def lost(store: str) -> StoreError:
        return StoreError(f"the {store} is gone")

    async with asyncio.timeout(SECONDS):
        with pytest.raises(StoreError, match="the store is gone"):
            await run_router(
                noting(noted, "store"),
                lambda _store: noting(noted, "router"),
                maintain=None,
                announce=lambda _router: None,
                lost=lost,
                log_tls_errors=False,
            )
    assert noted == ["store opened", "router opened", "router closed", "store closed"]


async def test_maintenance_opens_the_store_and_does_not_serve() -> None:
    noted: list[str] = []
    await run_router(
        noting(noted, "store"),
        lambda _store: noting(noted, "router"),
        maintain=lambda store: noted.append(f"{store} maintained"),
        announce=noted.append,
        lost=never,
        log_tls_errors=False,
    )
    assert noted == ["store opened", "store maintained", "store closed"]
