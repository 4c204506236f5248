"""The statistics of an NTF router on disk; those of an SMP router have tests of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import NtfStatistics
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
