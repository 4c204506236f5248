"""Events → one row per notification, and rows merged with rows.

Theory of operation. Spark groups quickly only by sums of numbers: a greatest text would make it sort. So rows are
merged in a coded form, all numbers, in which a text is its hash; afterwards the texts are put back from a list of the
few that occur.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.events import HASHES
from tocsin.pipeline.schemas.notifications import (
    IDENTITY,
    MOMENTS,
    NOTIFICATIONS,
    NUMBERS,
    STAGES,
    TEXTS,
    moment,
)

BEST_END_FIRST = (Stage.ACCEPTED, Stage.FAILED, Stage.SHED, Stage.SUPERSEDED)
"""The end that counts is the best one, if it came twice and ended twice."""
assert set(BEST_END_FIRST) == ENDS
BAD_ENDS = (Stage.FAILED, Stage.SHED, Stage.DROPPED)
DAY = 86_400_000_000
HOUR = 3_600_000_000
STAGE_CODE = "_stage"
ALWAYS = (Stage.SENT, Stage.RECEIVED)
"""Have a column even if no event is of theirs: the least of two times can be asked for."""
CODED = (*IDENTITY, *HASHES, *TEXTS, *NUMBERS, *MOMENTS)


def coded_events(
    events: DataFrame, *, stages: Collection[str], texts: Mapping[str, Collection[str]]
) -> DataFrame:
    """A row for every event, to be merged: its time in the column of its stage.

    Only these stages and texts occur in the events; there are no columns of others.
    """
    here = [stage for stage in STAGES if stage in stages or stage in ALWAYS]
    at = {moment(stage): F.when(_is(stage), F.col("at")) for stage in here}
    numbers = {
        "size": F.col("size"),
        "attempts": F.when(_is(Stage.ATTEMPTED), F.col("attempt")).otherwise(0),
        "last_received_at": F.when(_is(Stage.RECEIVED), F.col("at")),
    }
    codes = {
        name: code(column, texts[name])
        for name, column in zip(TEXTS, _texts_of_events(), strict=True)
        if name in texts
    }
    coded = {**{name: F.col(name) for name in (*IDENTITY, *HASHES)}, **codes, **numbers, **at}
    others = sorted(set(stages) - set(map(str, STAGES)))
    about_one = events.where(~F.col("stage").isin(others)) if others else events
    numbered = about_one.withColumn(STAGE_CODE, F.xxhash64("stage"))  # one hash, then comparisons of numbers
    return numbered.select(*(coded[name].alias(name) for name in CODED if name in coded))


def coded_rows(
    notifications: DataFrame, *, stages: Collection[str], texts: Mapping[str, Collection[str]]
) -> DataFrame:
    """Rows of the table, to be merged with others. As above, there are no columns of other stages and texts."""
    last = F.coalesce("last_received_at", moment(Stage.RECEIVED)).alias("last_received_at")
    other = {
        "last_received_at": last,
        **{name: code(F.col(name), known).alias(name) for name, known in texts.items()},
    }
    absent = {*(moment(stage) for stage in STAGES if stage not in stages), *TEXTS} - other.keys()
    return notifications.select(*(other.get(name, F.col(name)) for name in CODED if name not in absent))


def merged(coded: DataFrame) -> DataFrame:
    """One row per notification: least times, greatest of the rest.

    The order of the rows does not matter, nor whether some come twice. A column that is missing is null everywhere:
    what need not be merged costs nothing.
    """
    merged = [name for name in CODED if name in coded.columns and name not in IDENTITY]
    return coded.groupBy(*IDENTITY).agg(
        *((F.min(name) if name in MOMENTS else F.max(name)).alias(name) for name in merged)
    )


def decoded(rows: DataFrame, *, names: Mapping[str, DataFrame]) -> DataFrame:
    """Merged rows in the table's form, without columns that would be null everywhere. `names`: as for `with_texts`."""
    first = F.least(*(name for name in MOMENTS if name in rows.columns))
    other = {
        "day": day_of(first),
        "hour": hour_of(first),
        "last_received_at": F.when(redelivered(), F.col("last_received_at")),
    }
    found = with_texts(rows, names=names)
    columns = [name for name in NOTIFICATIONS.names if name in other or name in found.columns]
    return found.select(*(other.get(name, F.col(name)).alias(name) for name in columns))


def with_texts(rows: DataFrame, *, names: Mapping[str, DataFrame]) -> DataFrame:
    """Texts in place of their codes, by column. `names`: all texts (`text`) that a column can have."""
    for column, texts in names.items():
        known = texts.select(code(F.col("text")).alias(column), F.col("text").alias("_text"))
        joined = rows.join(F.broadcast(known), on=column, how="left")  # codes are unique
        rows = joined.withColumn(column, F.col("_text")).drop("_text")
    return rows


def day_of(at: Column) -> Column:
    """UTC, of microseconds since 1970. By arithmetic: calendars cost ten times as much."""
    return F.date_from_unix_date(F.floor(at / DAY).cast("int"))


def hour_of(at: Column) -> Column:
    return F.floor(F.pmod(at, F.lit(DAY)) / HOUR).cast("int")


def ends() -> Column:
    """How many ends a notification has at the NTF router: 0 while it is pending, 1, or more if it was redelivered."""
    total = F.lit(0)
    for stage in BEST_END_FIRST:
        total = total + reached(stage).cast("int")
    return total


def redelivered() -> Column:
    return F.coalesce(F.col("last_received_at") > F.col(moment(Stage.RECEIVED)), F.lit(False))


def reached(stage: Stage) -> Column:
    return F.col(moment(stage)).isNotNull()


def pending() -> Column:
    """Received, and nothing became of it yet."""
    return reached(Stage.RECEIVED) & (ends() == 0)


def _texts_of_events() -> list[Column]:
    """A reason counts only where the notification ended by it."""
    ends_badly = _is(BAD_ENDS[0]) | _is(BAD_ENDS[1]) | _is(BAD_ENDS[2])
    reason = F.when(ends_badly, F.col("reason"))
    return [reason if name == "reason" else F.col(name) for name in TEXTS]


def _is(stage: Stage) -> Column:
    return F.col(STAGE_CODE) == F.xxhash64(F.lit(str(stage)))


def code(text: Column, known: Collection[str] = ()) -> Column:
    """A number in place of a text. `known`: all texts it can be; if there is only one it is not even looked at."""
    only = next(iter(known)) if len(known) == 1 else None
    return F.when(text.isNotNull(), F.xxhash64(text if only is None else F.lit(only)))
