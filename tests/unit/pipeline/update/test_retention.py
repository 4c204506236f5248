"""Counts outlive the rows they were counted from: nothing that happens later changes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change, token_change
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.update.lake_updates import delivered, publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE, NOTIFICATIONS_TABLE, TABLES
from tocsin.pipeline.update.build import build, keep_tidy
from tocsin.pipeline.update.retention import RETENTION, expire, kept_days, late_events, rows_since

DAY = date(2026, 11, 15)
A_DAY = 86_400 * SECOND
ROWS = ("events", "notifications")

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def expired_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One day that was counted, and whose rows are gone; and a later day with rows."""
    lake = Lake(tmp_path_factory.mktemp("expired") / "lake")
    later = [event(Stage.RECEIVED, 9, at=NOON + 20 * A_DAY, period="20792-0123abcd")]
    changes = [token_change(1, "ACTIVE"), subscription_change(1, "ACTIVE")]
    publish_events(spark, lake, [*delivered(1), *delivered(2), *changes, *later], "first")
    build(spark, lake, smallest_group=1)
    assert expire(lake, DAY + timedelta(days=30)) == {}
    assert set(expire(lake, DAY + timedelta(days=31))) == set(ROWS)
    return lake


@pytest.fixture
def expired(expired_once: Lake, lake: Lake) -> Lake:
    """A copy of that for each test: building it takes longer than the test."""
    shutil.copytree(expired_once.folder, lake.folder, dirs_exist_ok=True)
    return lake


def counts(lake: Lake) -> dict[str, list[str]]:
    return {name: rows for name, rows in tables(lake.folder).items() if name not in ROWS}


def test_tables_expire_by_their_retention(spark: SparkSession, expired: Lake) -> None:
    assert len(counts(expired)["funnel_hourly"]) == 2
    assert expire(expired, DAY + timedelta(days=400)).get("funnel_hourly") is None
    assert expire(expired, DAY + timedelta(days=401))["funnel_hourly"] == 1


def test_retention_is_chosen_per_table(spark: SparkSession, lake: Lake) -> None:
    publish_events(spark, lake, delivered(1), "first")
    build(spark, lake, smallest_group=1)
    chosen = {**RETENTION, "events": 3, "funnel_hourly": 5}
    assert set(expire(lake, DAY + timedelta(days=6), retention=chosen)) == {
        "events",
        "funnel_hourly",
    }
    assert rows_since(lake) == DAY + timedelta(days=3)


def test_a_build_by_hand_keeps_rows_as_long_as_the_service_does(spark: SparkSession, lake: Lake) -> None:
    publish_events(spark, lake, delivered(1), "first")
    build(spark, lake, smallest_group=1)
    after = datetime(2027, 1, 20, tzinfo=UTC).timestamp()
    keep_tidy(spark, lake, after, {**RETENTION, "events": 90, "notifications": 90})
    number = lake.table(NOTIFICATIONS_TABLE).snapshot().number
    keep_tidy(spark, lake, after)
    assert lake.table(EVENTS_TABLE).snapshot().rows == 5
    assert kept_days(lake) == {**RETENTION, "events": 90, "notifications": 90}
    keep_tidy(spark, lake, after, kept_days(lake))
    assert lake.table(NOTIFICATIONS_TABLE).snapshot().number == number
    keep_tidy(spark, lake, after, RETENTION)
    assert kept_days(lake) == RETENTION
    assert lake.table(EVENTS_TABLE).snapshot().rows == 0


@pytest.mark.parametrize("smallest", [1, 5])
def test_a_build_without_news_changes_nothing_of_an_expired_day(
    spark: SparkSession, expired: Lake, smallest: int
) -> None:
    """Expiry is a change of the rows, and another threshold rebuilds everything that can be rebuilt."""
    before = [row for row in counts(expired)["funnel_hourly"] if "2026-11-15" in row]
    assert not build(spark, expired, smallest_group=smallest).failures
    assert [row for row in counts(expired)["funnel_hourly"] if "2026-11-15" in row] == before


LATE: list[tuple[list[DeliveryEvent], int]] = [
    ([event(Stage.ACCEPTED, 1, at=NOON + 9)], 1),
    (delivered(3), 5),
    ([event(Stage.FAILED, 2, at=NOON + 25 * A_DAY, reason="x")], 1),
    ([token_change(7, "INVALID,BAD", token=7), subscription_change(8, "AUTH")], 2),
    ([event(Stage.ACCEPTED, 9, at=NOON + 21 * A_DAY, period="20792-0123abcd")], 0),
]


@pytest.mark.parametrize(("late", "number"), LATE)
def test_late_events_of_an_expired_day_are_counted_as_late_and_nowhere_else(
    spark: SparkSession, expired: Lake, late: list[DeliveryEvent], number: int
) -> None:
    before = counts(expired)
    publish_events(spark, expired, late, "late")
    built = build(spark, expired, smallest_group=1)
    assert (built.late_events, late_events(expired), built.failures) == (number, number, {})
    if number:
        assert counts(expired) == before
    else:
        [row] = expired.table(FUNNEL_TABLE).read(spark).where("day > '2026-11-16'").collect()
        assert (row.received, row.accepted, row.pending) == (1, 1, 0)


def tidy(spark: SparkSession, lake: Lake) -> None:
    keep_tidy(spark, lake, datetime(2026, 12, 16, tzinfo=UTC).timestamp())


def lose_old_commits(spark: SparkSession, lake: Lake) -> None:
    """As the log's own retention does, two days after they were made."""
    log = lake.folder / "events" / "_delta_log"
    DeltaTable(lake.folder / "events").create_checkpoint()
    for commit in log.glob("*.json"):
        commit.unlink()


@pytest.mark.parametrize("meanwhile", [tidy, lose_old_commits])
def test_late_events_are_counted_once_whatever_happens_to_their_files(
    spark: SparkSession,
    expired: Lake,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[SparkSession, Lake], None],
) -> None:
    """Events of the same hour wait for the next build when files are compacted, or when commits are deleted."""
    monkeypatch.setattr("tocsin.pipeline.lake.lake.SMALL_FILES", 2)
    at = NOON + 25 * A_DAY
    publish_events(spark, expired, [event(Stage.FAILED, 2, at=at, reason="x")], "late")
    assert build(spark, expired, smallest_group=1).late_events == 1
    publish_events(spark, expired, [event(Stage.RECEIVED, 10, at=at, period="20797-0123abcd")], "news")
    meanwhile(spark, expired)
    built = build(spark, Lake(expired.folder), smallest_group=1)
    assert (built.rows["notifications"] > 0, built.late_events, late_events(expired)) == (True, 0, 1)


def test_a_lake_that_was_expired_by_an_older_version_keeps_its_counts(
    spark: SparkSession, lake: Lake
) -> None:
    """Older versions removed rows without recording which days are complete."""
    publish_events(spark, lake, delivered(1), "first")
    build(spark, lake, smallest_group=1)
    before = counts(lake)
    for table in ROWS:
        lake.table(next(each for each in TABLES if each.name == table)).expire("2026-12-01")
    build(spark, lake, smallest_group=1)
    assert counts(lake) == before
