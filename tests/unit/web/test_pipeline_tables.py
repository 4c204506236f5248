"""Sums of the pipeline's tables for the view `Operate`."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.small_lake import make_small_lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.web.pipeline_tables import growing_tables, read_tables


def test_tables_are_added_up_without_spark(tmp_path: Path) -> None:
    make_small_lake(tmp_path)
    tables = read_tables(tmp_path)
    assert tables is not None
    assert tables.funnel == {
        "received": 100,
        "accepted": 80,
        "superseded": 12,
        "failed": 5,
        "shed": 1,
        "pending": 2,
    }
    assert [at for at, _ in tables.hours] == ["2026-11-15 07:00", "2026-11-15 08:00"]
    assert tables.stages == (("NTF router", 2, (0.002, 0.002, 0.002)), ("provider", 2, (0.25, 0.25, 0.25)))
    assert tables.outcomes[0] == ("accepted", "", 80)
    assert tables.engines == (("inline", 50, 3), ("not pushed", 0, 1), ("spark", 30, 1))
    assert tables.tokens == (("INVALID", "UNREGISTERED", 5),)
    [server] = tables.servers
    assert (server["received"], server["errors"], server["skew_us"]) == (100, 2, -3_000)
    assert tables.drift == (("smp1.example", "missing at SMP", 3),)
    assert tables.losses is None
    write_status(
        tmp_path, "check", "failed", {"overdue": 3, "never_received": 0, "unknown_queue": 1}, "4 lost"
    )
    tables = read_tables(tmp_path)
    assert tables is not None
    assert tables.losses == {"overdue": 3, "never_received": 0, "unknown_queue": 1}
    assert read_tables(tmp_path / "nothing") is None
    assert dict(growing_tables(tmp_path))["funnel_hourly"] == 2
    assert {rows for _, rows in growing_tables(tmp_path / "nothing")} == {0}
