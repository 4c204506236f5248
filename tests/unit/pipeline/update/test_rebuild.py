"""Days are counted again with the same result, and a period is forgotten while its counts stay."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change, token_change
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.update.lake_updates import delivered, publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.update.build import build
from tocsin.pipeline.update.rebuild import count_period, forget, rebuild
from tocsin.pipeline.update.retention import expire

DAY = date(2026, 11, 15)
A_DAY = 86_400 * SECOND

pytestmark = pytest.mark.timeout(400)


def three_days() -> list[DeliveryEvent]:
    """One of the notifications has a first event three days before its period."""
    other = [
        event(Stage.RECEIVED, 10 + day, at=NOON + day * A_DAY, period=f"{20772 + day}-0123abcd")
        for day in range(3)
    ]
    wrong = [event(Stage.ENQUEUED, 12, at=NOON - A_DAY, period="20774-0123abcd")]
    changes = [token_change(1, "ACTIVE"), subscription_change(2, "ACTIVE", at=NOON + A_DAY)]
    return [*delivered(1), *other, *wrong, *changes]


@pytest.fixture
def built(spark: SparkSession, lake: Lake) -> Lake:
    publish_events(spark, lake, three_days(), "first")
    build(spark, lake, smallest_group=1)
    return lake


@pytest.mark.parametrize("first", [DAY, DAY + timedelta(days=2)])
def test_a_rebuild_gives_the_same_tables(spark: SparkSession, built: Lake, first: date) -> None:
    before = tables(built.folder)
    done = rebuild(spark, built, first, smallest_group=1)
    assert done.failures == {}
    assert done.rows["funnel_hourly"] > 0
    assert tables(built.folder) == before


def test_a_rebuild_repairs_rows_that_an_older_version_counted_wrongly(
    spark: SparkSession, built: Lake
) -> None:
    before = tables(built.folder)
    table = built.table(NOTIFICATIONS_TABLE)
    wrong = table.read(spark).where("accepted_at IS NULL")
    table.publish(wrong, key="wrong", replacing=table.snapshot().partitions)
    build(spark, built, smallest_group=1)
    assert tables(built.folder) != before
    rebuild(spark, built, DAY, smallest_group=1)
    assert tables(built.folder) == before


def test_a_rebuild_leaves_expired_days_alone(spark: SparkSession, lake: Lake) -> None:
    publish_events(spark, lake, [each for each in three_days() if each.at >= NOON], "first")
    build(spark, lake, smallest_group=1)
    expire(lake, DAY + timedelta(days=32))
    before = tables(lake.folder)
    rebuild(spark, lake, DAY - timedelta(days=5), smallest_group=1)
    assert tables(lake.folder) == before


def test_a_forgotten_period_has_no_rows_and_keeps_its_counts(spark: SparkSession, built: Lake) -> None:
    counts = {
        name: rows for name, rows in tables(built.folder).items() if name not in ("events", "notifications")
    }
    for _ in range(2):
        assert count_period(spark, built, DAY) == {"notifications": 2, "events": 8}
    assert forget(spark, built, DAY) == {"notifications": 2, "events": 8}
    for table in (EVENTS_TABLE, NOTIFICATIONS_TABLE):
        left = built.table(table).read(spark).select("period").distinct().collect()
        assert {row.period for row in left} == {"20773-0123abcd", "20774-0123abcd"}
    publish_events(
        spark, built, [event(Stage.ACCEPTED, 11, at=NOON + A_DAY + 9, period="20773-0123abcd")], "more"
    )
    build(spark, built, smallest_group=1)
    after = tables(built.folder)
    kept = [row for row in after["funnel_hourly"] if "2026-11-15" in row]
    assert kept == [row for row in counts["funnel_hourly"] if "2026-11-15" in row]
    [row] = built.table(FUNNEL_TABLE).read(spark).where("day = '2026-11-16'").collect()
    assert (row.received, row.accepted, row.pending) == (1, 1, 0)
