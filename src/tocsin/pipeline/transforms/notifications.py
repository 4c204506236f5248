"""Events → one row per notification, and rows merged with rows.

Theory of operation. Spark aggregates fast only over numbers: the maximum of a text column would make it sort. So rows
are merged in a coded form that consists of numbers, with a hash in place of each text. Afterwards the texts are put
back from a list of the few that occur.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
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
"""If a notification was received twice and ended twice, the best end counts."""
assert set(BEST_END_FIRST) == ENDS
BAD_ENDS = (Stage.FAILED, Stage.SHED, Stage.DROPPED)
"""A reason counts only if the notification ended by it …"""
PUSHED_ENDS = (Stage.ACCEPTED, Stage.FAILED)
"""… and so does an engine."""
DAY = 86_400_000_000
HOUR = 3_600_000_000
FEW_TEXTS = 16
STAGE_CODE = "_stage"
ALWAYS = (Stage.SENT, Stage.RECEIVED)
"""Stages that always have a column, since the minimum needs at least two."""
CODED = (*IDENTITY, *HASHES, *TEXTS, *NUMBERS, *MOMENTS)
OVERDUE = ("period", "high", "low", "received_at", "smp_host")


def coded_events(
    events: DataFrame, *, stages: Collection[str], texts: Mapping[str, Collection[str]]
) -> DataFrame:
    """One row per event, ready to merge: its time is in the column of its stage.

    `stages` and `texts` name all that occur in the events; other stages and texts get no column.
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
    numbered = about_one.withColumn(STAGE_CODE, F.xxhash64("stage"))  # one hash, then number comparisons
    return numbered.select(*(coded[name].alias(name) for name in CODED if name in coded))


def coded_rows(
    notifications: DataFrame, *, stages: Collection[str], texts: Mapping[str, Collection[str]]
) -> DataFrame:
    """Rows of the table, ready to merge. As in `coded_events`, other stages and texts get no column."""
    last = F.coalesce("last_received_at", moment(Stage.RECEIVED)).alias("last_received_at")
    other = {
        "last_received_at": last,
        **{name: code(F.col(name), known).alias(name) for name, known in texts.items()},
    }
    absent = {*(moment(stage) for stage in STAGES if stage not in stages), *TEXTS} - other.keys()
    return notifications.select(*(other.get(name, F.col(name)) for name in CODED if name not in absent))


def merged(coded: DataFrame) -> DataFrame:
    """One row per notification: the minimum of times, the maximum of other columns.

    Neither order nor repetition of rows matters. A missing column is null everywhere and costs nothing.
    """
    merged = [name for name in CODED if name in coded.columns and name not in IDENTITY]
    return coded.groupBy(*IDENTITY).agg(
        *((F.min(name) if name in MOMENTS else F.max(name)).alias(name) for name in merged)
    )


def decoded(rows: DataFrame, *, texts: Mapping[str, Collection[str]]) -> DataFrame:
    """Merged rows in the table's form, without columns that would be null everywhere. `texts`: see `with_texts`."""
    first = F.least(*(name for name in MOMENTS if name in rows.columns))
    other = {
        "day": day_of(first),
        "hour": hour_of(first),
        "last_received_at": F.when(redelivered(), F.col("last_received_at")),
    }
    found = with_texts(rows, texts=texts)
    columns = [name for name in NOTIFICATIONS.names if name in other or name in found.columns]
    return found.select(*(other.get(name, F.col(name)).alias(name) for name in columns))


def with_texts(rows: DataFrame, *, texts: Mapping[str, Collection[str]]) -> DataFrame:
    """Replaces codes by texts. `texts` has, for each column, all that it can hold."""
    few = {name: sorted(known) for name, known in texts.items() if len(known) <= FEW_TEXTS}
    rows = rows.withColumns({name: _text_of(F.col(name), known) for name, known in few.items()})
    for column in texts.keys() - few.keys():
        # Made from Arrow, the texts become part of the plan, and no Python process starts to hand them over.
        listed = rows.sparkSession.createDataFrame(
            pa.table({"_text": pa.array(sorted(texts[column]), pa.string())})
        )
        known = listed.select(code(F.col("_text")).alias(column), "_text")
        joined = rows.join(F.broadcast(known), on=column, how="left")  # codes are unique
        rows = joined.withColumn(column, F.col("_text")).drop("_text")
    return rows


def _text_of(code_: Column, texts: Sequence[str]) -> Column:
    """Compares with one code after the other, which costs less than a join as long as there are few."""
    return F.coalesce(
        *(F.when(code_ == F.xxhash64(F.lit(text)), F.lit(text)) for text in texts), F.lit(None).cast("string")
    )


def day_of(at: Column) -> Column:
    """The UTC day of microseconds since 1970, by arithmetic: calendar functions cost ten times as much."""
    return F.date_from_unix_date(F.floor(at / DAY).cast("int"))


def hour_of(at: Column) -> Column:
    return F.floor(F.pmod(at, F.lit(DAY)) / HOUR).cast("int")


def ends() -> Column:
    """Number of ends at the NTF router: 0 while pending, 1, or more if the notification was redelivered."""
    total = F.lit(0)
    for stage in BEST_END_FIRST:
        total = total + reached(stage).cast("int")
    return total


def redelivered() -> Column:
    return F.coalesce(F.col("last_received_at") > F.col(moment(Stage.RECEIVED)), F.lit(False))


def reached(stage: Stage) -> Column:
    return F.col(moment(stage)).isNotNull()


def pending() -> Column:
    """Received, without an end so far."""
    return reached(Stage.RECEIVED) & (ends() == 0)


def _texts_of_events() -> list[Column]:
    of_end = {
        name: F.when(reduce(Column.__or__, map(_is, ends)), F.col(name))
        for name, ends in (("reason", BAD_ENDS), ("engine", PUSHED_ENDS))
    }
    return [of_end.get(name, F.col(name)) for name in TEXTS]


def _is(stage: Stage) -> Column:
    return F.col(STAGE_CODE) == F.xxhash64(F.lit(str(stage)))


def code(text: Column, known: Collection[str] = ()) -> Column:
    """The hash of a text. `known` names all possible texts; if there is only one, the column is not read."""
    only = next(iter(known)) if len(known) == 1 else None
    return F.when(text.isNotNull(), F.xxhash64(text if only is None else F.lit(only)))


def newest_moment(notifications: DataFrame) -> DataFrame:
    """One row, `as_of`: the time of the NTF routers' last step in the table, in microseconds since 1970."""
    stages = (Stage.RECEIVED, *sorted(ENDS))
    return notifications.agg(F.greatest(*(F.max(moment(stage)) for stage in stages)).alias("as_of"))


def overdue(notifications: DataFrame, *, received_before: int) -> DataFrame:
    """Pending notifications received before that time, in microseconds since 1970."""
    received_at = F.col(moment(Stage.RECEIVED))
    high, low = (F.col(name) for name in IDENTITY)
    found = notifications.where(pending() & (received_at < received_before))
    return found.select(
        "period",
        high.alias("high"),
        low.alias("low"),
        received_at.alias("received_at"),
        F.coalesce("smp_host", F.lit("")).alias("smp_host"),
    ).select(*OVERDUE)
