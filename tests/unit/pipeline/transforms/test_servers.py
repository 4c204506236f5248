"""The health of SMP hosts: gaps, clock skew and subscription storms."""

from __future__ import annotations

import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change
from tests.unit.pipeline.rows import counted, events
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.transforms.servers import count_subscription_changes, longest_gap


def test_a_server_has_its_longest_gap_and_its_skew(spark: SparkSession) -> None:
    minute = 60 * SECOND
    written = [
        event(Stage.SENT, 1, at=NOON + 5 * minute),
        event(Stage.RECEIVED, 1, at=NOON + 5 * minute - 300),
        event(Stage.RECEIVED, 2, at=NOON + 7 * minute),
        event(Stage.RECEIVED, 3, at=NOON + 20 * minute),
    ]
    [row] = counted(events(spark, written).toArrow())["servers_hourly"]
    assert (row.received, row.sent, row.longest_gap_seconds, row.skew_us) == (3, 1, 12 * 60, -300)
    assert row.storm is False


def test_a_storm_of_subscriptions_is_seen(spark: SparkSession) -> None:
    calm = [subscription_change(number, "ACTIVE", queue=number, host="calm.example") for number in range(4)]
    storm = [subscription_change(10 + number, "ACTIVE", queue=1, host="storm.example") for number in range(5)]
    wrong = [
        subscription_change(20, "AUTH", queue=2, host="calm.example"),
        subscription_change(21, "INACTIVE", queue=3, host="calm.example"),
        subscription_change(22, "", queue=3, host="calm.example"),
    ]
    written = [
        *calm,
        *storm,
        *wrong,
        event(Stage.RECEIVED, 1, host="calm.example"),
        event(Stage.RECEIVED, 2, host="storm.example"),
    ]
    rows = {row.smp_host: row for row in counted(events(spark, written).toArrow())["servers_hourly"]}
    assert (rows["calm.example"].storm, rows["storm.example"].storm) == (False, True)
    calm_row = rows["calm.example"]
    assert (calm_row.subscribed, calm_row.unsubscribed, calm_row.errors) == (4, 2, 1)


@pytest.mark.parametrize(
    ("minutes", "gap"), [(0b1, 0), (0b11, 0), (0b1001, 2), (0b100010110, 3), (1 << 59 | 1, 58)]
)
def test_a_gap_is_between_two_minutes_with_notifications(minutes: int, gap: int) -> None:
    assert longest_gap(minutes) == gap


def test_a_change_that_was_read_twice_is_one_change(spark: SparkSession) -> None:
    written = [subscription_change(1, "ACTIVE", queue=1, host="a.example")]
    once, twice = (
        counted(events(spark, each).toArrow())["servers_hourly"] for each in (written, written * 2)
    )
    assert once == twice
    assert [(row.subscribed, row.queues_changed, row.longest_gap_seconds) for row in once] == [(1, 1, None)]


def test_a_host_of_other_events_of_the_file_has_no_changes(spark: SparkSession) -> None:
    """Its name is in the dictionary of the file, too."""
    written = [subscription_change(1, "ACTIVE", host="a.example"), event(Stage.SENT, host="other.example")]
    rows = events(spark, written).toArrow()
    coded = rows.set_column(
        rows.column_names.index("smp_host"), "smp_host", rows["smp_host"].dictionary_encode()
    )
    changes = coded.filter(pc.equal(rows["stage"], Stage.SUBSCRIPTION_CHANGED))
    assert [change.smp_host for change in count_subscription_changes(changes, 12).hosts] == ["a.example"]
