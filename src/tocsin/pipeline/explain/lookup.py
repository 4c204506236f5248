"""Finds the events of a question: the only part of `explain` that uses Spark."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import date, timedelta
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import StoreError
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.explain.chains import Chain, EventRow, StatusChange, chains_of, changes_of
from tocsin.pipeline.explain.question import EPOCH, Question, QuestionSubject
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.schemas.events import HASHES, NOTIFICATION
from tocsin.pipeline.transforms.event_lines import hash_of, identity

COLUMNS = tuple(EventRow.__annotations__)


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """The events of one period."""

    period: str
    asked: tuple[Chain, ...]
    """Notifications that the question is about, oldest first."""
    others: tuple[Chain, ...]
    """All notifications of their queues, to find those that replaced them."""
    changes: tuple[StatusChange, ...]


def look_up(spark: SparkSession, lake: Lake, question: Question) -> FoundEvents:
    """Raises StoreError with a likely cause if nothing is found."""
    events = _events(spark, lake, question.day)
    if question.period is not None:
        events = events.where(F.col("period") == question.period)
    about = _about(question)
    seen = events.where(about).select("period", *NOTIFICATION, *HASHES).distinct().collect()
    periods = sorted({row["period"] for row in seen})
    if not periods:
        raise StoreError(_why_nothing(spark, lake, question))
    _refuse_several(periods)
    queues = {row["queue"] for row in seen if row["queue"] is not None}
    tokens = {row["token"] for row in seen if row["token"] is not None}
    rows = _rows(events.where(F.col("period") == periods[0]).where(about | _around(queues, tokens)))
    named = {(row[NOTIFICATION[0]], row[NOTIFICATION[1]]) for row in seen}
    others = chains_of(rows)
    asked = tuple(chain for chain in others if _is_asked(chain, question, named))
    return FoundEvents(periods[0], asked, others, changes_of(rows))


def _events(spark: SparkSession, lake: Lake, day: date | None) -> DataFrame:
    """Events from the day before on, since clocks differ. Late stages are in partitions of later days."""
    table = lake.table(EVENTS_TABLE)
    snapshot = table.snapshot()
    if not snapshot.files:
        raise StoreError(f"no events in {lake.folder}: run `tocsin pipeline ingest` first")
    first = (day - timedelta(days=1)).isoformat() if day else ""
    near = [each for each in snapshot.partitions if each[0] >= first]
    events = table.read(spark, snapshot.of_partitions(near))
    if day is None:
        return events
    return events.where(F.col("period").startswith(f"{(day - EPOCH).days}-"))


def _about(question: Question) -> Column:
    """Selects the rows of `events`, which hold hashes of pseudonyms."""
    period, pseudonym = F.col("period"), F.lit(question.pseudonym)
    if question.subject is not QuestionSubject.NOTIFICATION:
        return F.col(question.subject) == hash_of(period, pseudonym)
    high, low = identity(period, pseudonym)
    return (F.col(NOTIFICATION[0]) == high) & (F.col(NOTIFICATION[1]) == low)


def _around(queues: Set[int], tokens: Set[int]) -> Column:
    """Selects all events of these queues, since SMP routers know only queues, and changes of these tokens."""
    token_changes = (F.col("stage") == Stage.TOKEN_CHANGED) & F.col("token").isin(list(tokens))
    return F.col("queue").isin(list(queues)) | token_changes


def _rows(events: DataFrame) -> list[EventRow]:
    filled = events.select(*COLUMNS).fillna("")
    return [cast(EventRow, row.asDict()) for row in filled.collect()]


def _is_asked(chain: Chain, question: Question, named: Set[tuple[int, int]]) -> bool:
    """For a token, this includes notifications of its queues that only an SMP router knows."""
    if question.subject is QuestionSubject.NOTIFICATION and chain.notification not in named:
        return False
    if question.since is None or question.until is None:
        return True
    return question.since <= chain.began_at < question.until


def _refuse_several(periods: Sequence[str]) -> None:
    if len(periods) > 1:
        raise StoreError(
            f"this pseudonym occurs in {len(periods)} periods ({', '.join(periods)}), which cannot be compared: "
            "choose one with --day"
        )


def _why_nothing(spark: SparkSession, lake: Lake, question: Question) -> str:
    what = f"no events of this {question.subject}"
    if question.day is None:
        return f"{what}: run `tocsin pipeline ingest` if they are new; old events have been deleted"
    periods = sorted(
        row[0] for row in _events(spark, lake, question.day).select("period").distinct().collect()
    )
    if question.period is not None and periods and question.period not in periods:
        return (
            f"no events of {question.day} were written with this key (period {question.period}; the tables have "
            f"{', '.join(periods)}): name the folder that the routers use with --keys"
        )
    if not periods:
        return f"{what} on {question.day}: the tables have no events with that day's pseudonyms. Try another --day"
    return f"{what} on {question.day}: a pseudonym is valid for one day only. Try --day with the day before or after"
