"""The hourly funnel with its accounting, and outcomes. Hosts with few tokens are counted together."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event
from tests.unit.pipeline.rows import events, flag_counts_of, hours_of
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import (
    FUNNEL_HOURLY,
    OUTCOMES_HOURLY,
    SMALL_GROUPS,
)
from tocsin.pipeline.transforms.funnel import funnel_hourly, outcomes_hourly
from tocsin.pipeline.transforms.latency_spans import latency_hourly


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
    assert counted == {SMALL_GROUPS: 5}  # the two small hosts alone would be too few
    spans = latency_hourly(hours, sizes).collect()
    assert {row.smp_host for row in spans} <= {SMALL_GROUPS}
    more = [event(Stage.RECEIVED, 9, token=9, host="third.example")]
    hours, sizes = hours_of(spark, [*written, *more], smallest=3)
    counted = {row.smp_host: row.received for row in funnel_hourly(hours, sizes).collect()}
    assert counted == {"large.example": 3, SMALL_GROUPS: 3}


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
