"""The hourly funnel with its accounting, and outcomes. Hosts with few tokens are counted together."""

from __future__ import annotations

from types import SimpleNamespace

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event
from tests.unit.pipeline.rows import counted, events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS


def funnel(spark: SparkSession, written: list[DeliveryEvent]) -> list[SimpleNamespace]:
    return counted(events(spark, written).toArrow())["funnel_hourly"]


def test_the_funnel_adds_up(spark: SparkSession) -> None:
    written = [
        *(event(Stage.RECEIVED, number) for number in range(5)),
        event(Stage.ACCEPTED, 0),
        event(Stage.SUPERSEDED, 1),
        event(Stage.FAILED, 2, reason="410"),
        event(Stage.SHED, 3, reason="too old"),
    ]
    [row] = funnel(spark, written)
    assert (row.received, row.accepted, row.superseded, row.failed, row.shed) == (5, 1, 1, 1, 1)
    assert (row.pending, row.difference, row.tokens) == (1, 0, 1)


def test_two_ends_of_a_notification_are_a_difference(spark: SparkSession) -> None:
    written = [event(Stage.RECEIVED), event(Stage.ACCEPTED), event(Stage.FAILED, reason="410")]
    [row] = funnel(spark, written)
    assert (row.ends_twice, row.difference) == (1, -1)


def test_a_notification_that_was_sent_again_counts_once_by_its_better_end(spark: SparkSession) -> None:
    written = [
        event(Stage.RECEIVED),
        event(Stage.ACCEPTED, at=NOON + 10),
        event(Stage.RECEIVED, at=NOON + 20),
        event(Stage.SUPERSEDED, at=NOON + 30),
    ]
    [row] = funnel(spark, written)
    assert (row.received, row.accepted, row.superseded, row.redelivered) == (1, 1, 0, 1)
    assert (row.ends_twice, row.difference) == (0, 0)


def test_an_end_without_a_beginning_is_a_difference(spark: SparkSession) -> None:
    [row] = funnel(spark, [event(Stage.ACCEPTED)])
    assert (row.ends_unreceived, row.received, row.difference) == (1, 0, -1)


def test_hosts_of_few_tokens_are_counted_together(spark: SparkSession) -> None:
    written = [
        *(event(Stage.RECEIVED, number, token=number, host="large.example") for number in range(3)),
        event(Stage.RECEIVED, 7, token=7, host="small.example"),
        event(Stage.RECEIVED, 8, token=8, host="tiny.example"),
    ]
    rows = counted(events(spark, written).toArrow(), smallest=3)
    received = {row.smp_host: row.received for row in rows["funnel_hourly"]}
    assert received == {SMALL_GROUPS: 5}  # the two small hosts alone would be too few
    assert {row.smp_host for row in rows["latency_hourly"]} <= {SMALL_GROUPS}
    more = [event(Stage.RECEIVED, 9, token=9, host="third.example")]
    rows = counted(events(spark, [*written, *more]).toArrow(), smallest=3)
    received = {row.smp_host: row.received for row in rows["funnel_hourly"]}
    assert received == {"large.example": 3, SMALL_GROUPS: 3}


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
    rows = counted(events(spark, written).toArrow())["outcomes_hourly"]
    assert {(row.outcome, row.reason, row.n) for row in rows} == {
        ("failed", "410", 1),
        ("failed", "413", 1),
        ("accepted", None, 1),
    }
