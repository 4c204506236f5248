"""Quarantined lines are read again from their segments after an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, write_segment
from tests.unit.pipeline.rows import lines
from tests.unit.pipeline.update.lake_updates import delivered
from tocsin.pipeline.checks.event_checks import DAY, event_checks
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE
from tocsin.pipeline.transforms.event_lines import quarantine_of, read_lines
from tocsin.pipeline.update.quarantine_rereading import Reread, reread_quarantine

pytestmark = pytest.mark.timeout(400)


def test_lines_that_are_events_now_move_and_the_others_stay(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """The stricter checks of the first reading stand for an older version."""
    path = write_segment(tmp_path / "ntf", 1, delivered(1))
    with path.open("a") as file:
        file.write("garbage\n")
    texts = path.read_text().splitlines()
    strict = event_checks(now=NOON - 2 * DAY)
    for segment, some in ((f"ntf/{path.name}", texts), ("ntf/events-gone.jsonl", texts[:2])):
        rows = quarantine_of(read_lines(lines(spark, some, segment), checks=strict), seen_at=NOON)
        lake.table(QUARANTINE_TABLE).publish(rows, key=f"first-{len(some)}")
    expected = Reread(5, 1, 2, ("ntf/events-gone.jsonl",))
    assert reread_quarantine(spark, lake, [tmp_path / "ntf"], now=NOON, dry_run=True) == expected
    assert lake.table(EVENTS_TABLE).snapshot().rows == 0
    assert reread_quarantine(spark, lake, [tmp_path / "ntf"], now=NOON) == expected
    assert lake.table(EVENTS_TABLE).snapshot().rows == 5
    left = lake.table(QUARANTINE_TABLE).read(spark).collect()
    assert sorted((row.segment, row.reason) for row in left) == [
        ("ntf/events-00000000000000000001-1-1.jsonl", "not JSON"),
        ("ntf/events-gone.jsonl", "time ahead"),
        ("ntf/events-gone.jsonl", "time ahead"),
    ]
    assert reread_quarantine(spark, lake, [tmp_path / "ntf"], now=NOON) == Reread(
        0, 1, 2, ("ntf/events-gone.jsonl",)
    )
    assert lake.table(EVENTS_TABLE).snapshot().rows == 5
