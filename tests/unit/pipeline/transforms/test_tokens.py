"""Tokens per day and change."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event, token_change
from tests.unit.pipeline.rows import column_values_of_rows, events, notifications
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS, TOKENS_DAILY
from tocsin.pipeline.transforms.tokens import token_counts, with_large_counts


def counted(
    spark: SparkSession, written: list[DeliveryEvent], smallest: int = 1
) -> dict[tuple[str, str | None], int]:
    pushed = notifications(spark, written)
    texts = column_values_of_rows(pushed).texts
    counted = token_counts(events(spark, written), pushed, texts=texts, smallest=smallest)
    rows = with_large_counts(counted, smallest=smallest)
    assert rows.columns == TOKENS_DAILY.names
    return {(row.change, row.reason): row.tokens for row in rows.collect()}


def test_changes_count_tokens_not_events(spark: SparkSession) -> None:
    assert counted(
        spark,
        [
            token_change(1, "REGISTERED", token=1),
            token_change(2, "REGISTERED", token=1),
            token_change(3, "REGISTERED", token=2),
            token_change(4, "INVALID,UNREGISTERED", token=2),
            token_change(5, "", token=3),
        ],
    ) == {("REGISTERED", None): 2, ("INVALID", "UNREGISTERED"): 1, ("DELETED", None): 1}


def test_a_token_is_dead_if_no_push_of_the_day_was_accepted(spark: SparkSession) -> None:
    assert counted(
        spark,
        [
            event(Stage.RECEIVED, 1, token=1),
            event(Stage.FAILED, 1, token=1, reason="503"),
            event(Stage.RECEIVED, 2, token=1),
            event(Stage.ACCEPTED, 2, token=1),
            event(Stage.RECEIVED, 3, token=2),
            event(Stage.FAILED, 3, token=2, reason="expired"),
            event(Stage.RECEIVED, 4, token=3),
        ],
    ) == {("pushed", None): 1, ("dead", "expired"): 1}


def test_reasons_of_few_tokens_are_counted_together(spark: SparkSession) -> None:
    changes = [token_change(number, "INVALID,BAD", token=number) for number in range(3)]
    rare = [token_change(10, "INVALID,TOPIC", token=10), token_change(11, "INVALID,EXPIRED", token=11)]
    assert counted(spark, [*changes, *rare], smallest=3) == {
        ("INVALID", SMALL_GROUPS): 5  # BAD too: otherwise the difference would be the two others
    }
    more = [token_change(20 + number, "INVALID,TOPIC", token=20 + number) for number in range(3)]
    assert counted(spark, [*changes, *rare, *more], smallest=3) == {
        ("INVALID", "TOPIC"): 4,
        ("INVALID", SMALL_GROUPS): 4,
    }
    assert counted(spark, rare, smallest=3) == {}
