"""Ends by the engine that pushed, also where an engine has few devices."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event
from tests.unit.pipeline.rows import counted, events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS


def pushed(
    engine: str, *numbers: int, end: Stage = Stage.ACCEPTED, after: int = 5
) -> Iterator[DeliveryEvent]:
    for number in numbers:
        yield event(Stage.RECEIVED, number, token=number)
        yield event(Stage.ATTEMPTED, number, token=number, engine="inline", at=NOON + 1)
        yield event(end, number, token=number, engine=engine, at=NOON + after)


def shown(spark: SparkSession, written: list[DeliveryEvent], smallest: int = 1) -> dict[str, tuple[int, int]]:
    rows = counted(events(spark, written).toArrow(), smallest)["engines_hourly"]
    return {row.engine or "": (row.accepted, row.failed) for row in rows}


def test_ends_are_counted_by_the_engine_of_the_end(spark: SparkSession) -> None:
    written = [
        *pushed("inline", 1, 2),
        *pushed("spark", 3, 4, 5),
        *pushed("spark", 6, end=Stage.FAILED),
        *pushed("", 7, end=Stage.FAILED),
        event(Stage.RECEIVED, 8, token=8),
        event(Stage.SUPERSEDED, 8, token=8),
    ]
    assert shown(spark, written) == {"inline": (2, 0), "spark": (3, 1), "": (0, 1)}


def test_engines_are_named_only_if_each_has_enough_devices(spark: SparkSession) -> None:
    enough = [*pushed("inline", 1, 2), *pushed("spark", 3, 4)]
    assert shown(spark, enough, smallest=2) == {"inline": (2, 0), "spark": (2, 0)}
    few = [*enough, *pushed("", 5, end=Stage.FAILED)]  # an end without a push tells as much
    assert shown(spark, few, smallest=2) == {SMALL_GROUPS: (4, 1)}
