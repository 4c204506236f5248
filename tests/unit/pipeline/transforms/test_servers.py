"""The health of SMP hosts: gaps, clock skew and subscription storms."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change
from tests.unit.pipeline.rows import events, hours_of
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY
from tocsin.pipeline.transforms.servers import servers_hourly


def test_a_server_has_its_longest_gap_and_its_skew(spark: SparkSession) -> None:
    minute = 60 * SECOND
    written = [
        event(Stage.SENT, 1, at=NOON + 5 * minute),
        event(Stage.RECEIVED, 1, at=NOON + 5 * minute - 300),
        event(Stage.RECEIVED, 2, at=NOON + 7 * minute),
        event(Stage.RECEIVED, 3, at=NOON + 20 * minute),
    ]
    hours, sizes = hours_of(spark, written)
    rows = servers_hourly(events(spark, written), hours, sizes)
    assert rows.columns == SERVERS_HOURLY.names
    [row] = rows.collect()
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
    hours, sizes = hours_of(spark, written)
    rows = {row.smp_host: row for row in servers_hourly(events(spark, written), hours, sizes).collect()}
    assert (rows["calm.example"].storm, rows["storm.example"].storm) == (False, True)
    calm_row = rows["calm.example"]
    assert (calm_row.subscribed, calm_row.unsubscribed, calm_row.errors) == (4, 2, 1)
