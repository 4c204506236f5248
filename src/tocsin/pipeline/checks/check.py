"""A check: a name, and the condition that every good row fulfils."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


class Severity(StrEnum):
    ERROR = "error"
    """The row, or the table, is not used."""
    WARNING = "warning"
    """It is used, and shown."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    name: str
    holds: Callable[[], Column]
    """A function, since columns can be made only while there is a session."""
    severity: Severity = Severity.ERROR
    means: str = ""
    """For an operator: what it means if it fails, and what to do."""


def first_failed(checks: Sequence[RowCheck]) -> Column:
    """The name of the first that a row fails, or null. A condition that is null is not fulfilled."""
    failed = [F.when(~F.coalesce(check.holds(), F.lit(False)), F.lit(check.name)) for check in checks]
    return F.coalesce(*failed)


def count_failed(rows: DataFrame, checks: Sequence[RowCheck]) -> DataFrame:
    """One row: for every check the number of rows that fail it."""
    return rows.agg(
        *(F.count_if(~F.coalesce(check.holds(), F.lit(False))).alias(check.name) for check in checks)
    )
