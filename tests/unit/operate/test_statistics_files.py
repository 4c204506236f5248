"""The statistics of an NTF router on disk; those of an SMP router have tests of their own."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from tests.doubles.failing_disk import FailingDisk
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.operate import statistics_files
from tocsin.operate.statistics_files import KeptStatistics

SUNDAY = datetime(2026, 11, 15, 12, tzinfo=UTC)


def loaded(folder: Path) -> tuple[NtfCounters, KeptStatistics]:
    counters = NtfCounters()
    statistics = NtfStatistics(counters, since=SUNDAY)
    files = KeptStatistics(statistics, folder / "stats.log", folder / "daily.log")
    files.load()
    return counters, files


def test_counters_go_on_after_a_restart(tmp_path: Path) -> None:
    for run in range(3):
        counters, files = loaded(tmp_path)
        assert counters.notifications_received == 5 * run
        assert counters.own.received["smp.own.test"] == run
        counters.notifications_received += 5
        counters.own.received["smp.own.test"] += 1
        files.save()


def test_each_day_has_a_line_and_is_counted_once(tmp_path: Path) -> None:
    counters, files = loaded(tmp_path)
    for day in (16, 17):
        counters.tokens_created += day
        counters.notifications_received_auth += 1
        files.end_day(datetime(2026, 11, day, tzinfo=UTC))
    lines = [line.split(",") for line in (tmp_path / "daily.log").read_text().splitlines()]
    assert [len(line) for line in lines] == [22, 22]
    assert [line[:2] for line in lines] == [["2026-11-15", "16"], ["2026-11-16", "17"]]
    after, _ = loaded(tmp_path)
    assert (after.tokens_created, after.notifications_received_auth) == (0, 2)


class FailingStatistics:
    """Every method raises, each time another error."""

    def __init__(self) -> None:
        self._errors: Iterator[Exception] = itertools.cycle(
            (OSError(errno.EIO, "bad"), KeyError("a bug"), ValueError("none"), RuntimeError("changed size"))
        )
        self.calls = 0
        self.often = asyncio.Event()

    def _fail(self) -> NoReturn:
        self.calls += 1
        if self.calls >= 20:
            self.often.set()
        raise next(self._errors)

    def restore(self, text: str, written: datetime) -> None:
        self._fail()

    def lines(self, now: datetime) -> list[str]:
        self._fail()

    def end_day(self, now: datetime) -> str:
        self._fail()


async def test_whatever_fails_nobody_else_is_hurt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = FailingStatistics()
    files = KeptStatistics(statistics, tmp_path / "stats.log", tmp_path / "daily.log")
    (tmp_path / "stats.log").write_text("something")
    for _ in range(4):
        files.load()
        files.save()

    async def at_once(_at: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(statistics_files, "_sleep_until", at_once)
    writing = asyncio.create_task(files.write_daily_lines())
    async with asyncio.timeout(10):
        await statistics.often.wait()
    assert not writing.done(), "the next day comes all the same"
    writing.cancel()


def test_a_disk_that_fails_at_any_call_is_logged_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters, files = loaded(tmp_path)
    disk = FailingDisk(tmp_path, monkeypatch)
    files.end_day(SUNDAY)
    for call in range(1, disk.calls + 1):
        counters.tokens_created += 1
        disk.fail(call)
        files.end_day(SUNDAY)
        disk.heal()
    assert sum(disk.failed.values()) >= 10
    files.end_day(SUNDAY)
