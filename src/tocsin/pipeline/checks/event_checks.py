"""The checks that a line must pass to be an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tocsin.events.delivery_events import SCHEMA_VERSION, Stage
from tocsin.pipeline.schemas.events import REQUIRED
from tocsin.pipeline.schemas.notifications import STAGES

UNREADABLE: Final = "_unreadable"
"""Column with the line if it is not valid JSON."""
PSEUDONYM: Final = r"^[A-Za-z0-9_-]{22}$"
PERIOD: Final = r"^[0-9]{1,6}-[0-9a-f]{8}$"
EARLIEST: Final = 1_577_836_800_000_000
LATEST: Final = 4_102_444_800_000_000
"""2020 and 2100 in microseconds: a time outside means a broken clock or writer."""
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


def _given(name: str) -> Column:
    return F.col(name).isNotNull()


def _pseudonym_if_given(name: str) -> Column:
    return F.col(name).isNull() | F.col(name).rlike(PSEUDONYM)


EVENT_CHECKS: Final = (
    RowCheck("not JSON", lambda: F.col(UNREADABLE).isNull() & F.col("id").isNotNull()),
    RowCheck(
        f"not version {SCHEMA_VERSION}",
        lambda: F.coalesce(F.col("version"), F.lit(SCHEMA_VERSION)) == SCHEMA_VERSION,
    ),
    *(RowCheck(f"no {name}", partial(_given, name)) for name in REQUIRED),
    RowCheck("unknown stage", lambda: F.col("stage").isin([str(stage) for stage in Stage])),
    RowCheck("impossible time", lambda: F.col("at").between(EARLIEST, LATEST)),
    RowCheck("not a period", lambda: F.col("period").rlike(PERIOD)),
    *(
        RowCheck(f"{name} is no pseudonym", partial(_pseudonym_if_given, name))
        for name in ("notification", "queue", "token")
    ),
    RowCheck(
        "no notification",
        lambda: ~F.col("stage").isin([str(stage) for stage in STAGES]) | F.col("notification").isNotNull(),
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
"""In order: the first check that fails is the reason in `quarantine`."""
