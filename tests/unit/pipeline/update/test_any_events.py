"""Any mix of events can be built, and the tables depend neither on order, nor on repeats, nor on splits into builds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event, subscription_change, token_change
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.update.lake_updates import publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.update.build import build

DAY = 86_400 * SECOND
CHANGES = (Stage.TOKEN_CHANGED, Stage.SUBSCRIPTION_CHANGED)
STATUSES = ("ACTIVE", "END", "AUTH", "INVALID,BAD", "")
TIMES = st.sampled_from([0, 1, 59 * SECOND, 3600 * SECOND, DAY, -DAY, -2 * DAY, -5 * DAY, 4 * DAY])
SLOW = settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def one_event(stage: Stage, number: int, at: int, choice: int) -> DeliveryEvent:
    """`choice` selects host, token, reason and status."""
    host = ("a.example", "b.example")[choice % 2]
    if stage is Stage.TOKEN_CHANGED:
        return token_change(number, STATUSES[choice % 5], token=choice, at=NOON + at)
    if stage is Stage.SUBSCRIPTION_CHANGED:
        return subscription_change(number, STATUSES[choice % 5], queue=choice, at=NOON + at, host=host)
    return event(stage, number, at=NOON + at, host=host, token=choice, reason=("", "x", "y")[choice % 3])


@st.composite
def mixes(draw: st.DrawFn) -> list[DeliveryEvent]:
    """Events of any subset of stages, at times that may be days away from their period."""
    stages = draw(st.sets(st.sampled_from(list(Stage)), min_size=1))
    each = st.builds(one_event, st.sampled_from(sorted(stages)), st.integers(1, 6), TIMES, st.integers(0, 5))
    return draw(st.lists(each, min_size=1, max_size=25))


ONLY_CHANGES = [token_change(1, "ACTIVE"), subscription_change(2, "ACTIVE")]
LONG_BEFORE_THEIR_PERIOD = [
    event(Stage.RECEIVED, 1, at=NOON - 3 * DAY),
    event(Stage.ACCEPTED, 1, at=NOON),
    event(Stage.RECEIVED, 2, at=NOON - 5 * DAY),
    event(Stage.ENQUEUED, 2, at=NOON + 3 * DAY),
]


def built_in(
    spark: SparkSession, folder: Path, parts: Sequence[Sequence[DeliveryEvent]]
) -> dict[str, list[str]]:
    shutil.rmtree(folder, ignore_errors=True)
    lake = Lake(folder)
    for number, part in enumerate(parts):
        publish_events(spark, lake, part, f"part-{number}")
        assert build(spark, lake, smallest_group=1).failures == {}
    return {name: rows for name, rows in tables(folder).items() if name != "events"}


@SLOW
@given(mix=mixes(), cut=st.integers(0, 24), order=st.randoms(use_true_random=False))
@example(mix=ONLY_CHANGES, cut=1, order=None)
@example(mix=LONG_BEFORE_THEIR_PERIOD, cut=1, order=None)
@pytest.mark.timeout(600)
def test_order_repeats_and_splits_change_no_table(
    spark: SparkSession, tmp_path: Path, mix: list[DeliveryEvent], cut: int, order: Random | None
) -> None:
    """`events` is the record of the lines that were read, so it alone has the repeats."""
    other = [*mix, *mix[: cut + 1]]
    if order is not None:
        order.shuffle(other)
    parts = [part for part in (other[:cut], other[cut:]) if part]
    assert built_in(spark, tmp_path / "parts", parts) == built_in(spark, tmp_path / "whole", [mix])
