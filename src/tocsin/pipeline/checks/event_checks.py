"""The checks that a line must pass to be an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tocsin.events.delivery_events import FIRST_VERSION, SCHEMA_VERSION, Stage, readable_versions
from tocsin.pipeline.schemas.events import REQUIRED
from tocsin.pipeline.schemas.notifications import STAGES

UNREADABLE: Final = "_unreadable"
"""Column with the line if it is not valid JSON."""
PSEUDONYM: Final = r"^[A-Za-z0-9_-]{22}$"
PERIOD: Final = r"^[0-9]{1,6}-[0-9a-f]{8}$"
EARLIEST: Final = 1_577_836_800_000_000
"""2020 in microseconds: an earlier time means a broken clock or writer."""
DAY: Final = 86_400_000_000
AHEAD: Final = DAY
"""How far ahead of the pipeline's clock an event's time may be, in microseconds, unless the operator chooses otherwise.
A time further ahead would become the newest day of every report, and its rows would never expire."""
LONGEST_TEXT: Final = 255


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A condition that every good row meets. The condition is a function, since columns need a running session."""

    name: str
    holds: Callable[[], Column]


def first_failed(checks: Sequence[RowCheck]) -> Column:
    """The name of the first check that a row fails, or null. A null condition counts as failed."""
    failed = [F.when(~F.coalesce(check.holds(), F.lit(False)), F.lit(check.name)) for check in checks]
    return F.coalesce(*failed)


def period_day(period: Column) -> Column:
    """The day of a period's pseudonym key, counted from 1970."""
    return F.substring_index(period, "-", 1).try_cast("long")


def _given(name: str) -> Column:
    return F.col(name).isNotNull()


def _pseudonym_if_given(name: str) -> Column:
    return F.col(name).isNull() | F.col(name).rlike(PSEUDONYM)


def event_checks(*, now: int, ahead: int = AHEAD, version: int = SCHEMA_VERSION) -> tuple[RowCheck, ...]:
    """In order: the first check that fails is the reason in `quarantine`. `now` in microseconds since 1970."""
    versions = list(readable_versions(version))
    return (
        RowCheck("not JSON", lambda: F.col(UNREADABLE).isNull() & F.col("id").isNotNull()),
        RowCheck(
            f"not version {version}",
            lambda: F.coalesce(F.col("version"), F.lit(FIRST_VERSION)).isin(versions),
        ),
        *(RowCheck(f"no {name}", partial(_given, name)) for name in REQUIRED),
        RowCheck("unknown stage", lambda: F.col("stage").isin([str(stage) for stage in Stage])),
        RowCheck("impossible time", lambda: F.col("at") >= EARLIEST),
        RowCheck("time ahead", lambda: F.col("at") <= now + ahead),
        RowCheck("not a period", lambda: F.col("period").rlike(PERIOD)),
        RowCheck("period ahead", lambda: period_day(F.col("period")) * DAY <= now + ahead),
        *(
            RowCheck(f"{name} is no pseudonym", partial(_pseudonym_if_given, name))
            for name in ("notification", "queue", "token")
        ),
        RowCheck(
            "no notification",
            lambda: (
                ~F.col("stage").isin([str(stage) for stage in STAGES]) | F.col("notification").isNotNull()
            ),
        ),
        RowCheck(
            "text too long",
            lambda: (
                F.greatest(
                    *(
                        F.coalesce(F.length(name), F.lit(0))
                        for name in ("id", "router", "smp_host", "reason", "cause")
                    )
                )
                <= LONGEST_TEXT
            ),
        ),
    )
