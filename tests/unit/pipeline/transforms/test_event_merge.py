"""Events of a notification become one row, whatever their order and however often they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, PERIOD, SECOND, event, subscription_change
from tests.unit.pipeline.rows import events, notifications, with_hours
from tocsin.events.delivery_events import Stage
from tocsin.events.replay import spark_xxhash64
from tocsin.pipeline.schemas.notifications import MOMENTS, NOTIFICATIONS, STAGES, TEXTS, moment
from tocsin.pipeline.transforms.event_merge import merged_events, merged_rows, rows_to_merge
from tocsin.pipeline.transforms.notifications import BAD_ENDS, PUSHED_ENDS
from tocsin.pipeline.update.event_files import FORM

WAY = [
    event(Stage.ENQUEUED, at=NOON),
    event(Stage.SENT, at=NOON + 1),
    event(Stage.RECEIVED, at=NOON + 2),
    event(Stage.ATTEMPTED, at=NOON + 3, attempt=1),
    event(Stage.ATTEMPTED, at=NOON + 4, attempt=2),
    event(Stage.FAILED, at=NOON + 5, reason="503"),
]


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Without values that are null."""
    found = [{name: value for name, value in row.items() if value is not None} for row in rows.to_pylist()]
    return sorted(found, key=lambda row: sorted(map(str, row.items())))


def test_a_row_has_the_first_time_of_every_stage(spark: SparkSession) -> None:
    [row] = notifications(spark, [*WAY, subscription_change(1, "ACTIVE")]).to_pylist()
    assert row.keys() <= set(NOTIFICATIONS.names)
    assert (row["enqueued_at"], row["sent_at"], row["received_at"]) == (NOON, NOON + 1, NOON + 2)
    assert (row["attempted_at"], row["failed_at"]) == (NOON + 3, NOON + 5)
    assert (row["attempts"], row["reason"], row["smp_host"]) == (2, "503", "smp.example")
    assert (row["period"], str(row["day"]), row["hour"]) == (PERIOD, "2026-11-15", 12)


def test_order_and_repeats_do_not_matter(spark: SparkSession) -> None:
    other = event(Stage.RECEIVED, 2, at=NOON + 9, host="other.example")
    once, again = (notifications(spark, each) for each in ([*WAY, other], [*reversed(WAY), other, *WAY]))
    assert sorted_rows(once) == sorted_rows(again)


def test_rows_merge_with_rows_as_events_do(spark: SparkSession) -> None:
    early, late = (rows_to_merge(notifications(spark, each)) for each in (WAY[:3], WAY[3:]))
    assert sorted_rows(with_hours(merged_rows([early, late]))) == sorted_rows(notifications(spark, WAY))


def test_a_notification_that_comes_again_after_a_build_was_redelivered(spark: SparkSession) -> None:
    first, again = (notifications(spark, [event(Stage.RECEIVED, at=NOON + at)]) for at in (0, 20))
    assert "last_received_at" not in first.column_names
    [row] = with_hours(merged_rows([rows_to_merge(first), rows_to_merge(again)])).to_pylist()
    assert (row["received_at"], row["last_received_at"]) == (NOON, NOON + 20)


def test_columns_of_stages_and_texts_that_no_notification_has_are_not_written(spark: SparkSession) -> None:
    rows = notifications(spark, [event(Stage.RECEIVED), event(Stage.ACCEPTED)])
    assert {"received_at", "accepted_at", "provider"} <= set(rows.column_names) <= set(NOTIFICATIONS.names)
    assert not {"woken_at", "failed_at", "reason"} & set(rows.column_names)


def test_the_hour_is_that_of_the_first_event(spark: SparkSession) -> None:
    late = event(Stage.ACCEPTED, at=NOON + 7200 * SECOND)
    assert notifications(spark, [late, event(Stage.RECEIVED, at=NOON + 10)])["hour"].to_pylist() == [12]


def test_the_same_pseudonym_in_two_periods_is_two_notifications(spark: SparkSession) -> None:
    other_day = event(Stage.ACCEPTED, period="20773-0123abcd")
    assert len(notifications(spark, [event(Stage.RECEIVED), other_day])) == 2


def test_a_reason_counts_only_where_it_ended_a_notification(spark: SparkSession) -> None:
    retried = event(Stage.ATTEMPTED, attempt=1, reason="503")
    [row] = notifications(spark, [event(Stage.RECEIVED), retried, event(Stage.ACCEPTED)]).to_pylist()
    assert row.get("reason") is None


def test_events_that_are_about_no_notification_make_no_row(spark: SparkSession) -> None:
    assert len(merged_events(events(spark, [subscription_change(1, "ACTIVE")]).toArrow())) == 0


@st.composite
def rows_of_events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Few ids, so that many events meet, and ids that share a half. Any value may be missing."""
    text = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
    each = st.fixed_dictionaries(
        {
            "notification_high": st.integers(0, 1),
            "notification_low": st.sampled_from([-(1 << 63), -1, 0, 5]),
            "queue": st.one_of(st.none(), st.integers(-9, 9)),
            "token": st.one_of(st.none(), st.integers(-9, 9)),
            "stage": st.sampled_from([*STAGES, Stage.TOKEN_CHANGED]).map(str),
            **dict.fromkeys(TEXTS, text),
            "at": st.integers(NOON, NOON + 9),
            "size": st.one_of(st.none(), st.integers(0, 3)),
            "attempt": st.integers(0, 3),
        }
    )
    return draw(st.lists(each, min_size=1, max_size=60))


def plainly_merged(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rule, event by event."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for each in written:
        stage = Stage(each["stage"])
        if stage not in STAGES:
            continue
        row = found.setdefault((each["notification_high"], each["notification_low"]), {"attempts": 0})
        values = {
            name: each[name] for name in ("notification_high", "notification_low", "queue", "token", "size")
        }
        values |= {name: each[name] for name in ("period", "smp_host", "provider", "priority")}
        values["reason"] = each["reason"] if stage in BAD_ENDS else None
        values["engine"] = each["engine"] if stage in PUSHED_ENDS else None
        values["attempts"] = each["attempt"] if stage is Stage.ATTEMPTED else 0
        values["last_received_at"] = each["at"] if stage is Stage.RECEIVED else None
        for name, value in values.items():
            if value is not None:
                key = spark_xxhash64 if name in TEXTS else int
                row[name] = max(row.get(name, value), value, key=key)
        row[moment(stage)] = min(row.get(moment(stage), each["at"]), each["at"])
    return sorted(found.values(), key=lambda row: sorted(map(str, row.items())))


@given(written=rows_of_events(), parts=st.integers(1, 4))
def test_any_events_in_any_parts_become_the_rows_of_the_rule(
    written: list[dict[str, Any]], parts: int
) -> None:
    merged = [
        merged_events(pa.Table.from_pylist(written[part::parts], FORM))
        for part in range(parts)
        if written[part::parts]
    ]
    whole = merged_rows([*merged, merged[0]])
    assert sorted_rows(whole) == plainly_merged(written)
    hours = with_hours(whole)
    for row in hours.to_pylist():
        first = min(row[name] for name in MOMENTS if row.get(name) is not None)
        assert row["hour"] == first // (3600 * SECOND) % 24
        last = row.get("last_received_at")
        assert last is None or last > row["received_at"]
    assert np.unique([len(hours)]) == len(plainly_merged(written))
