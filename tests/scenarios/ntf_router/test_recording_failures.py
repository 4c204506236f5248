"""Recording never hurts delivery: whatever event log, keys and statistics do, answers and pushes go on."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.failing_disk import FailingDisk
from tests.doubles.ntf_harness import NtfHarness, ntf_router, until
from tests.doubles.smp_harness import OK, PATIENCE, SmpHarness, smp_router
from tests.unit.ntf_router.delivery.test_delivery import conversation
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PERIOD_SECONDS, PseudonymKeys
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription
from tocsin.protocol.ntf.token_commands import DeleteToken
from tocsin.push.provider import RetryLater
from tocsin.smp_router.event_recorder import SmpEventRecorder

ERRORS: Final = (OSError(errno.ENOSPC, "No space left"), KeyError("a bug"), MemoryError())


class FailingEvents:
    """Recorders of both routers, all of whose methods raise, each time another error."""

    logged = True

    def __init__(self) -> None:
        self._errors: Iterator[Exception] = itertools.cycle(ERRORS)
        self.called: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def raise_next(*_arguments: Any) -> None:
            self.called[name] += 1
            raise next(self._errors)

        return raise_next


async def deliveries(smp: SmpHarness, ntf: NtfHarness) -> None:
    """A device that registers, subscribes, gets pushes, some at the second attempt, and leaves."""
    device = await ntf.active_device()
    chats = [await conversation(smp, ntf, device) for _ in range(2)]
    counters = ntf.running.state.counters
    for number, chat in enumerate(chats * 2):
        if number == 2:
            ntf.provider.answers.append(RetryLater("connection"))
        before = counters.notifications_received
        await chat.send()
        await until(lambda before=before: counters.notifications_received == before + 1)  # type: ignore[misc]

    async with asyncio.timeout(PATIENCE):
        while (await ntf.store.accounting()).pending:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    answer = await device.client.ask(DeleteSubscription(), chats[0].subscription_id, device.key)
    assert answer == OK
    assert await device.ask(DeleteToken()) == OK


async def test_recorders_that_raise_at_every_call() -> None:
    of_smp, of_ntf = FailingEvents(), FailingEvents()
    async with (
        smp_router(notification_interval=0.0, events=of_smp) as smp,
        ntf_router(events=of_ntf) as ntf,
    ):
        await deliveries(smp, ntf)
        smp_counters, ntf_counters = smp.running.state.counters, ntf.running.state.counters
    methods = {name for name in vars(NoEvents) if not name.startswith("_")} - {"logged"}
    assert set(of_ntf.called) == methods, "a method was not tried"
    assert set(of_smp.called) == {"record"}
    assert smp_counters.events_lost >= 8
    assert ntf_counters.events_failed >= 12


class Days:
    def __init__(self) -> None:
        self.now = 20_000.0 * PERIOD_SECONDS

    def __call__(self) -> float:
        return self.now


async def test_a_disk_that_is_full_when_the_key_of_the_day_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days()
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    disk = FailingDisk(recorded, monkeypatch)
    logs = [EventLog(recorded / name, now=days) for name in ("smp", "ntf")]
    keys = [PseudonymKeys(recorded / "keys", 7, days) for _ in logs]
    of_smp = SmpEventRecorder(logs[0], keys[0], "smp", "host")
    of_ntf = NtfEventRecorder(logs[1], keys[1], "ntf", NtfLatencies())
    async with (
        smp_router(notification_interval=0.0, events=of_smp) as smp,
        ntf_router(events=of_ntf) as ntf,
    ):
        await deliveries(smp, ntf)
        written = [log.written for log in logs]
        assert min(written) > 0
        days.now += PERIOD_SECONDS
        disk.fill()
        await deliveries(smp, ntf)
        assert [log.written for log in logs] == written
        assert smp.running.state.counters.events_lost > 0
        assert ntf.running.state.counters.events_failed > 0
        disk.heal()
        days.now += 10
        await deliveries(smp, ntf)
        assert all(log.written > before for log, before in zip(logs, written, strict=True))
    for log in logs:
        log.close()


async def test_a_slow_disk_costs_one_slow_write_and_events_that_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path)
    log.append([b"{}\n"], 1)
    now, write, slow_writes = [0.0], os.write, 0

    def slow(descriptor: int, data: bytes) -> int:
        nonlocal slow_writes
        slow_writes += 1
        now[0] += 1.0
        return write(descriptor, data)

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(os, "write", slow)
    for _ in range(100):
        log.append([b"{}\n"], 1)
    assert slow_writes == 1
    assert (log.written, log.lost) == (2, 99)
    now[0] += 60.0
    log.append([b"{}\n"], 1)
    assert log.written == 3
    monkeypatch.undo()
    log.close()
