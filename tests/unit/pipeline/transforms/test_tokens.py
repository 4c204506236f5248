"""Tokens per day and change."""

from __future__ import annotations

import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event, token_change
from tests.unit.pipeline.rows import counted, events, notifications_of
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.transforms.tokens import TokenRows, changes_in, counted_tokens, pushes_in


def tokens_of(
    spark: SparkSession, written: list[DeliveryEvent], smallest: int = 1
) -> dict[tuple[str, str | None], int]:
    rows = counted(events(spark, written).toArrow(), smallest)["tokens_daily"]
    return {(row.change, row.reason): row.tokens for row in rows}


def test_changes_count_tokens_not_events(spark: SparkSession) -> None:
    assert tokens_of(
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
    assert tokens_of(
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
    assert tokens_of(spark, [*changes, *rare], smallest=3) == {
        ("INVALID", SMALL_GROUPS): 5  # BAD too: otherwise the difference would be the two others
    }
    more = [token_change(20 + number, "INVALID,TOPIC", token=20 + number) for number in range(3)]
    assert tokens_of(spark, [*changes, *rare, *more], smallest=3) == {
        ("INVALID", "TOPIC"): 4,
        ("INVALID", SMALL_GROUPS): 4,
    }
    assert tokens_of(spark, rare, smallest=3) == {}


def test_a_token_that_changed_for_several_rare_reasons_counts_once(spark: SparkSession) -> None:
    rare = [token_change(each, f"INVALID,{reason}", token=each // 2) for each, reason in enumerate("ABCDEF")]
    assert tokens_of(spark, rare, smallest=3) == {("INVALID", SMALL_GROUPS): 3}


def test_parts_of_the_tokens_add_up(spark: SparkSession) -> None:
    written = [token_change(number, "ACTIVE", token=number % 7) for number in range(20)]
    for number in range(20):
        end = Stage.ACCEPTED if number % 3 else Stage.FAILED
        written.append(event(end, number, token=number % 11, reason="x"))
    rows = events(spark, written).toArrow()
    whole = TokenRows(
        pushes_in(notifications_of(rows)),
        changes_in(rows.filter(pc.equal(rows["stage"], Stage.TOKEN_CHANGED))),
    )
    parts = [counted_tokens([whole.part(number, 3), whole.part(number, 3)]) for number in range(3)]
    assert sum(parts[1:], parts[0]) == counted_tokens([whole])
    assert sum(counted_tokens([whole]).pushed.values()) == 11
