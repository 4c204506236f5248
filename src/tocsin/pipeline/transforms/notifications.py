"""Events → one row per notification, and rows merged with rows.

Theory of operation. Spark groups quickly only by sums of numbers: a greatest text would make it sort. So rows are
merged in a coded form, all numbers, in which a text is its hash; afterwards the texts are put back from a list of the
few that occur.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
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
assert set(BEST_END_FIRST) == ENDS
BAD_ENDS = (Stage.FAILED, Stage.SHED, Stage.DROPPED)
CODED = (*IDENTITY, *HASHES, *TEXTS, *NUMBERS, *MOMENTS)


def words_of_events(events: DataFrame) -> DataFrame:
    """Which stages and texts occur together, with the codes of the texts: few rows."""
    return _words(events.select("stage", *_texts_of_events()), "stage")


def words_of_rows(notifications: DataFrame) -> DataFrame:
    return _words(notifications.select(*TEXTS))


def coded_events(events: DataFrame, *, stages: Collection[str], texts: Collection[str]) -> DataFrame:
    """A row for every event, to be merged: its time in the column of its stage.

    Only these stages and texts occur in the events; columns of others are not computed.
    """
    numbers = {
        "size": F.col("size"),
        "attempts": F.when(F.col("stage") == Stage.ATTEMPTED, F.col("attempt")).otherwise(0),
        "last_received_at": F.when(F.col("stage") == Stage.RECEIVED, F.col("at")),
    }
    coded = {
        **{name: F.col(name) for name in (*IDENTITY, *HASHES)},
        **{
            name: _code(column) if name in texts else _none()
            for name, column in zip(TEXTS, _texts_of_events(), strict=True)
        },
        **numbers,
        **{
            moment(stage): F.when(F.col("stage") == stage, F.col("at")) if stage in stages else _none()
            for stage in STAGES
        },
    }
    about_one = events.where(F.col("stage").isin([str(stage) for stage in STAGES]))
    return about_one.select(*(coded[name].alias(name) for name in CODED))


def coded_rows(notifications: DataFrame) -> DataFrame:
    """Rows of the table, to be merged with others."""
    return notifications.select(
        *(_code(F.col(name)).alias(name) if name in TEXTS else F.col(name) for name in CODED)
    )


def merged(coded: DataFrame) -> DataFrame:
    """One row per notification: least times, greatest of the rest.

    The order of the rows does not matter, nor whether some come twice.
    """
    greatest = (*HASHES, *TEXTS, *NUMBERS)
    return coded.groupBy(*IDENTITY).agg(
        *(F.max(name).alias(name) for name in greatest), *(F.min(name).alias(name) for name in MOMENTS)
    )


def decoded(rows: DataFrame, *, names: Mapping[str, DataFrame]) -> DataFrame:
    """Merged rows in the table's form. `names`: for a text column its codes (`code`) and texts (`text`)."""
    for column in TEXTS:
        if column in names:
            known = names[column].select(F.col("code").alias(column), F.col("text").alias(f"_{column}"))
            rows = rows.join(F.broadcast(known), on=column, how="left")  # codes are unique
        else:
            rows = rows.withColumn(f"_{column}", F.lit(None).cast("string"))
    first = F.timestamp_micros(F.least(*MOMENTS))
    texts = {column: F.col(f"_{column}") for column in TEXTS}
    hours = {"day": F.to_date(first), "hour": F.hour(first)}
    other = {**texts, **hours}
    return rows.select(
        *(other[name].alias(name) if name in other else F.col(name) for name in NOTIFICATIONS.names)
    )


def ends() -> Column:
    """How many ends a notification has at the NTF router: 0 while it is pending, 1, or more if it was redelivered."""
    total = F.lit(0)
    for stage in BEST_END_FIRST:
        total = total + reached(stage).cast("int")
    return total


def outcome() -> Column:
    """The end that counts: the best one, if it came twice and ended twice."""
    return F.coalesce(*(F.when(reached(stage), F.lit(str(stage))) for stage in BEST_END_FIRST))


def redelivered() -> Column:
    return F.col("last_received_at") > F.col(moment(Stage.RECEIVED))


def reached(stage: Stage) -> Column:
    return F.col(moment(stage)).isNotNull()


def pending() -> Column:
    """Received, and nothing became of it yet."""
    return reached(Stage.RECEIVED) & (ends() == 0)


def _texts_of_events() -> list[Column]:
    """A reason counts only where the notification ended by it."""
    ends_badly = F.col("stage").isin(*BAD_ENDS)
    reason = F.when(ends_badly, F.col("reason")).alias("reason")
    return [reason if name == "reason" else F.col(name) for name in TEXTS]


def _words(rows: DataFrame, *others: str) -> DataFrame:
    distinct = rows.groupBy(*others, *TEXTS).agg(F.count("*").alias("n"))
    codes = [_code(F.col(name)).alias(f"{name}_code") for name in TEXTS]
    return distinct.select(*others, *TEXTS, *codes)


def _code(text: Column) -> Column:
    return F.when(text.isNotNull(), F.xxhash64(text))


def _none() -> Column:
    return F.lit(None).cast("long")
