"""Legs of a notification's way: from one stage to another, and how long they took."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import Stage
from tocsin.pipeline.schemas.notifications import moment

SPANS: Final[dict[str, tuple[Stage, Stage]]] = {
    "SMP router": (Stage.ENQUEUED, Stage.SENT),
    "between routers": (Stage.SENT, Stage.RECEIVED),
    "NTF router": (Stage.RECEIVED, Stage.ATTEMPTED),
    "provider": (Stage.ATTEMPTED, Stage.ACCEPTED),
    "NTF router and provider": (Stage.RECEIVED, Stage.ACCEPTED),
    "SMP router to provider": (Stage.ENQUEUED, Stage.ACCEPTED),
    "provider to device": (Stage.ACCEPTED, Stage.WOKEN),
    "on the device": (Stage.WOKEN, Stage.FETCHED),
}
"""By the name that reports show. Legs between two machines also measure how far their clocks disagree."""


def spans_between(stages: Set[str]) -> list[str]:
    return [span for span, ends in SPANS.items() if stages >= set(ends)]


def span_time(span: str) -> Column:
    """Microseconds; negative if clocks disagree, null unless the notification was at both ends."""
    start, end = SPANS[span]
    return F.col(moment(end)) - F.col(moment(start))


def times_column(span: str) -> str:
    """The column with a sketch of them."""
    return f"times, {span}"


def negative_column(span: str) -> str:
    """The fact that it took less than no time, and the column that counts it."""
    return f"negative, {span}"
