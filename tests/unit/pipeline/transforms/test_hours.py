"""Counts of hours: the funnel and its accounting, outcomes, latencies, servers; small groups are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change
from tests.unit.pipeline.rows import events, flag_counts_of, notifications
from tocsin.observability.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.schemas.hourly import (
    FUNNEL_HOURLY,
    LATENCY_HOURLY,
    OUTCOMES_HOURLY,
    SERVERS_HOURLY,
    SMALL_GROUPS,
)
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.funnel import funnel_hourly, host_hours, outcomes_hourly
from tocsin.pipeline.transforms.latency_spans import SPANS, latency_hourly, quantiles, times_column
from tocsin.pipeline.transforms.notification_flags import count_by_flags
from tocsin.pipeline.transforms.servers import servers_hourly
from tocsin.pipeline.transforms.small_groups import large_hosts


def hours_of(
    spark: SparkSession, written: Sequence[DeliveryEvent], smallest: int = 1
) -> tuple[DataFrame, DataFrame]:
    hours = host_hours(flag_counts_of(spark, events(spark, written)))
    return hours, large_hosts(hours, smallest=smallest)


def test_the_funnel_adds_up(spark: SparkSession) -> None:
    written = [
        *(event(Stage.RECEIVED, number) for number in range(5)),
        event(Stage.ACCEPTED, 0),
        event(Stage.SUPERSEDED, 1),
        event(Stage.FAILED, 2, reason="410"),
        event(Stage.SHED, 3, reason="too old"),
    ]
    rows = funnel_hourly(*hours_of(spark, written))
    assert rows.columns == FUNNEL_HOURLY.names
    [row] = rows.collect()
    assert (row.received, row.accepted, row.superseded, row.failed, row.shed) == (5, 1, 1, 1, 1)
    assert (row.pending, row.difference, row.tokens) == (1, 0, 1)


def test_two_ends_of_a_notification_are_a_difference(spark: SparkSession) -> None:
    written = [event(Stage.RECEIVED), event(Stage.ACCEPTED), event(Stage.FAILED, reason="410")]
    [row] = funnel_hourly(*hours_of(spark, written)).collect()
    assert (row.ends_twice, row.difference) == (1, -1)


def test_a_notification_that_was_sent_again_counts_once_by_its_better_end(spark: SparkSession) -> None:
    written = [
        event(Stage.RECEIVED),
        event(Stage.ACCEPTED, at=NOON + 10),
        event(Stage.RECEIVED, at=NOON + 20),
        event(Stage.SUPERSEDED, at=NOON + 30),
    ]
    [row] = funnel_hourly(*hours_of(spark, written)).collect()
    assert (row.received, row.accepted, row.superseded, row.redelivered) == (1, 1, 0, 1)
    assert (row.ends_twice, row.difference) == (0, 0)


def test_an_end_without_a_beginning_is_a_difference(spark: SparkSession) -> None:
    [row] = funnel_hourly(*hours_of(spark, [event(Stage.ACCEPTED)])).collect()
    assert (row.ends_unreceived, row.received, row.difference) == (1, 0, -1)


def test_hosts_of_few_tokens_are_counted_together(spark: SparkSession) -> None:
    written = [
        *(event(Stage.RECEIVED, number, token=number, host="large.example") for number in range(3)),
        event(Stage.RECEIVED, 7, token=7, host="small.example"),
        event(Stage.RECEIVED, 8, token=8, host="tiny.example"),
    ]
    hours, sizes = hours_of(spark, written, smallest=3)
    counted = {row.smp_host: row.received for row in funnel_hourly(hours, sizes).collect()}
    assert counted == {"large.example": 3, SMALL_GROUPS: 2}
    spans = latency_hourly(hours, sizes).collect()
    assert {row.smp_host for row in spans} <= {"large.example", SMALL_GROUPS}


def test_outcomes_have_their_reasons(spark: SparkSession) -> None:
    written = [
        event(Stage.RECEIVED, 1),
        event(Stage.FAILED, 1, reason="410"),
        event(Stage.RECEIVED, 2),
        event(Stage.FAILED, 2, reason="413"),
        event(Stage.RECEIVED, 3),
        event(Stage.ACCEPTED, 3),
        event(Stage.RECEIVED, 4),
    ]
    _, sizes = hours_of(spark, written)
    rows = outcomes_hourly(flag_counts_of(spark, events(spark, written)), sizes)
    assert rows.columns == OUTCOMES_HOURLY.names
    assert {(row.outcome, row.reason, row.n) for row in rows.collect()} == {
        ("failed", "410", 1),
        ("failed", "413", 1),
        ("accepted", None, 1),
    }


def test_latencies_merge_over_hours(spark: SparkSession) -> None:
    written = []
    for number in range(100):
        at = NOON + (3600 * SECOND if number % 2 else 0)
        written += [
            event(Stage.RECEIVED, number, at=at),
            event(Stage.ACCEPTED, number, at=at + 1000 * (number + 1)),
        ]
    rows = latency_hourly(*hours_of(spark, written))
    assert rows.columns == LATENCY_HOURLY.names
    assert sorted(row.n for row in rows.collect()) == [50, 50]
    [span] = quantiles(rows, ranks=(0.0, 0.5, 1.0)).collect()
    assert span.leg == "NTF router and provider"
    assert (span.us[0], span.us[2]) == (1000, 100_000)
    assert 45_000 <= span.us[1] <= 55_000


def test_clocks_that_disagree_are_counted(spark: SparkSession) -> None:
    written = [event(Stage.SENT, at=NOON + 500), event(Stage.RECEIVED, at=NOON)]
    [span] = latency_hourly(*hours_of(spark, written)).collect()
    assert (span.leg, span.n, span.negative) == ("between routers", 1, 1)


def test_stages_where_no_notification_was_need_not_be_looked_at(spark: SparkSession) -> None:
    written = [event(Stage.SENT), event(Stage.RECEIVED), event(Stage.ACCEPTED), event(Stage.RECEIVED, 2)]
    rows = notifications(spark, written)
    here = {Stage.SENT, Stage.RECEIVED, Stage.ACCEPTED}
    few, all_of_them = (host_hours(count_by_flags(rows, stages=stages)) for stages in (here, set(STAGES)))
    assert [span for span in SPANS if times_column(span) in few.columns] == [
        "between routers",
        "NTF router and provider",
    ]
    sizes = large_hosts(few, smallest=1)
    assertDataFrameEqual(funnel_hourly(few, sizes), funnel_hourly(all_of_them, sizes))
    assertDataFrameEqual(latency_hourly(few, sizes), latency_hourly(all_of_them, sizes))


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
