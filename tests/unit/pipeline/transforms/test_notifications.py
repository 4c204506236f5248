"""Events of a notification become one row, whatever their order and however often they come."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tests.doubles.delivery_lines import NOON, PERIOD, SECOND, event, subscription_change
from tests.unit.pipeline.rows import column_values_of_rows, events, notifications
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.notifications import NOTIFICATIONS
from tocsin.pipeline.transforms import notifications as transform

WAY = [
    event(Stage.ENQUEUED, at=NOON),
    event(Stage.SENT, at=NOON + 1),
    event(Stage.RECEIVED, at=NOON + 2),
    event(Stage.ATTEMPTED, at=NOON + 3, attempt=1),
    event(Stage.ATTEMPTED, at=NOON + 4, attempt=2),
    event(Stage.FAILED, at=NOON + 5, reason="503"),
]


def rows_merged(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """As a later build merges them."""
    words = column_values_of_rows(rows)
    coded = transform.coded_rows(rows, stages=words.stages, texts=words.texts)
    return transform.decoded(transform.merged(coded), texts=words.texts)


def test_a_row_has_the_first_time_of_every_stage(spark: SparkSession) -> None:
    [row] = notifications(spark, [*WAY, subscription_change(1, "ACTIVE")]).collect()
    assert row.asDict().keys() == set(NOTIFICATIONS.names)
    assert (row.enqueued_at, row.sent_at, row.received_at) == (NOON, NOON + 1, NOON + 2)
    assert (row.attempted_at, row.failed_at, row.accepted_at) == (NOON + 3, NOON + 5, None)
    assert (row.attempts, row.reason, row.smp_host, row.provider) == (2, "503", "smp.example", "apns_prod")
    assert (row.period, str(row.day), row.hour) == (PERIOD, "2026-11-15", 12)


def test_order_and_repeats_do_not_matter(spark: SparkSession) -> None:
    other = event(Stage.RECEIVED, 2, at=NOON + 9, host="other.example")
    assertDataFrameEqual(
        notifications(spark, [*WAY, other]), notifications(spark, [*reversed(WAY), other, *WAY])
    )


def test_rows_merge_with_rows_as_events_do(spark: SparkSession) -> None:
    early, late = notifications(spark, WAY[:3]), notifications(spark, WAY[3:])
    [row] = rows_merged(spark, early.unionByName(late)).collect()
    assert (row.enqueued_at, row.failed_at, row.smp_host) == (NOON, NOON + 5, "smp.example")


def test_a_notification_that_comes_again_after_a_build_was_redelivered(spark: SparkSession) -> None:
    first, again = (notifications(spark, [event(Stage.RECEIVED, at=NOON + at)]) for at in (0, 20))
    assert [row.last_received_at for row in first.collect()] == [None]
    [row] = rows_merged(spark, first.unionByName(again)).collect()
    assert (row.received_at, row.last_received_at) == (NOON, NOON + 20)


def test_columns_of_stages_and_texts_that_no_notification_has_are_not_written(spark: SparkSession) -> None:
    written = events(spark, [event(Stage.RECEIVED), event(Stage.ACCEPTED)])
    words = column_values_of_rows(written)
    coded = transform.coded_events(written, stages=words.stages, texts=words.texts)
    rows = transform.decoded(transform.merged(coded), texts=words.texts)
    assert {"received_at", "accepted_at", "provider"} <= set(rows.columns) <= set(NOTIFICATIONS.names)
    assert not {"woken_at", "failed_at", "reason"} & set(rows.columns)


def test_a_text_has_the_same_code_if_it_is_the_only_one(spark: SparkSession) -> None:
    text = F.col("text")
    codes = [transform.code(text), transform.code(text, ["a", "b"]), transform.code(text, ["a"])]
    rows = spark.createDataFrame([("a",), (None,)], "text string").select(*codes).collect()
    assert [len(set(row)) for row in rows] == [1, 1]
    assert [row[0] is None for row in rows] == [False, True]


@pytest.mark.parametrize("few", [0, 1, 2, 16])
def test_few_texts_are_compared_and_many_are_joined(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(transform, "FEW_TEXTS", few)
    texts = {"reason": ["a", "b"], "smp_host": ["'h'", "(small groups)"], "engine": []}
    written = [("a", "'h'"), ("b", "(small groups)"), (None, None)]
    rows = spark.createDataFrame(written, "reason string, smp_host string")
    coded = rows.select(
        *(transform.code(F.col(name)).alias(name) for name in rows.columns),
        F.lit(None).cast("long").alias("engine"),
    )
    found = transform.with_texts(coded, texts=texts).collect()
    assert {(row.reason, row.smp_host, row.engine) for row in found} == {(*row, None) for row in written}


def test_the_hour_is_that_of_the_first_event(spark: SparkSession) -> None:
    late = event(Stage.ACCEPTED, at=NOON + 7200 * SECOND)
    [row] = notifications(spark, [late, event(Stage.RECEIVED, at=NOON + 10)]).collect()
    assert row.hour == 12


def test_the_same_pseudonym_in_two_periods_is_two_notifications(spark: SparkSession) -> None:
    other_day = event(Stage.ACCEPTED, period="20773-0123abcd")
    rows = notifications(spark, [event(Stage.RECEIVED), other_day]).collect()
    assert len(rows) == 2


@pytest.mark.parametrize("stage", [Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED])
def test_a_notification_is_pending_until_it_has_an_end(spark: SparkSession, stage: Stage) -> None:
    rows = notifications(spark, [event(Stage.RECEIVED, 1), event(Stage.RECEIVED, 2), event(stage, 2)])
    assert [
        row.n for row in rows.select(transform.pending().cast("int").alias("n")).orderBy("n").collect()
    ] == [0, 1]


def test_a_reason_counts_only_where_it_ended_a_notification(spark: SparkSession) -> None:
    retried = event(Stage.ATTEMPTED, attempt=1, reason="503")
    [row] = notifications(spark, [event(Stage.RECEIVED), retried, event(Stage.ACCEPTED)]).collect()
    assert row.reason is None


def test_events_that_are_about_no_notification_make_no_row(spark: SparkSession) -> None:
    assert notifications(spark, [subscription_change(1, "ACTIVE")]).collect() == []
