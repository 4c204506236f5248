"""Figures from rows of notifications. tests/unit/pipeline/jobs/test_report.py has losses as events tell them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from pyarrow.dataset import dataset  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.pipeline.report.row_scan import PATIENCE, engine_times, losses
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.notifications import NOTIFICATIONS

DAY = 86_400_000_000
NOON = 20_772 * DAY + DAY // 2
NOW = NOON + DAY
TODAY = "20772-0123abcd"


def notifications(*rows: dict[str, object]) -> Any:
    whole = [{"period": TODAY, **row} for row in rows]
    return dataset(pa.Table.from_pylist(whole, to_arrow_schema(NOTIFICATIONS)))


def accepted(engine: str | None, token: int | None, took: int) -> dict[str, object]:
    return {"engine": engine, "token": token, "received_at": NOON, "accepted_at": NOON + took}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"received_at": NOON}, "overdue"),
        ({"received_at": NOW - PATIENCE}, None),
        ({"received_at": NOON, "superseded_at": NOON}, None),
        ({"sent_at": NOON}, "never_received"),
        ({"sent_at": NOON, "expired_at": NOON}, None),
        ({"sent_at": NOON, "received_at": NOON, "shed_at": NOON}, None),
        ({"sent_at": NOON + DAY // 2 - 1}, None),
        ({"sent_at": NOON, "period": "no day"}, None),
        ({"sent_at": NOON, "period": None}, None),
        ({"sent_at": NOON, "unknown_queue_at": NOON}, "unknown_queue"),
        ({"received_at": NOW, "unknown_queue_at": NOON}, None),
        ({"accepted_at": NOON}, "ends_unreceived"),
        ({"received_at": NOON, "accepted_at": NOON, "failed_at": NOON}, "ends_twice"),
        (
            {"received_at": NOON, "accepted_at": NOON, "failed_at": NOON, "last_received_at": NOON + 1},
            None,
        ),
    ],
)
def test_each_kind_of_loss_is_told_from_what_is_fine(row: dict[str, object], kind: str | None) -> None:
    expected = DeliveryLosses() if kind is None else DeliveryLosses(**{kind: 1})
    assert losses(notifications(row), now=NOW) == expected


def test_nothing_is_lost_of_no_notifications() -> None:
    assert losses(notifications(), now=NOW) == DeliveryLosses()


def test_times_of_each_engine_from_receipt_to_acceptance() -> None:
    rows = notifications(
        accepted("inline", 1, 10),
        accepted("inline", 2, 30),
        accepted("spark", 3, 500),
        accepted("spark", 3, 700),
        accepted("spark", 4, -5),
        accepted(None, 5, 9),
        {"engine": "spark", "token": 6, "received_at": NOON, "failed_at": NOON},
    )
    assert engine_times(rows, ranks=(0.1, 0.5, 0.99), smallest=2) == {
        "inline": (10, 10, 30),
        "spark": (0, 500, 700),
    }


def test_no_engine_has_times_if_one_pushed_to_few_devices() -> None:
    """Otherwise the times of the other would tell about the few."""
    rows = [accepted("inline", each, 5) for each in (1, 2, 3)]
    few = [accepted("spark", each, 5) for each in (4, 4, 5, None)]
    assert engine_times(notifications(*rows, *few), ranks=(0.5,), smallest=2).keys() == {"inline", "spark"}
    assert engine_times(notifications(*rows, *few), ranks=(0.5,), smallest=3) == {}
