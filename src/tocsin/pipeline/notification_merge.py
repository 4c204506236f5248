"""Keeps `notifications` up to date: new events are merged into the rows of their notifications.

Rows of notifications that had none yet only add files. Partitions with rows that get news are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake import Lake, LakeTable, Partition
from tocsin.pipeline.schemas.notifications import IDENTITY, TEXTS
from tocsin.pipeline.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.transforms import notifications as transform

EPOCH = date(1970, 1, 1)


@dataclass(slots=True)
class _Words:
    """The stages and texts that occur in rows, the texts by their code."""

    stages: set[str] = field(default_factory=set)
    texts: dict[str, dict[int, str]] = field(default_factory=lambda: {name: {} for name in TEXTS})

    def learn(self, rows: DataFrame) -> None:
        for row in rows.collect():
            word = row.asDict()
            self.stages.add(word.get("stage", ""))
            for name in TEXTS:
                if word[name] is not None:
                    self.texts[name][word[f"{name}_code"]] = word[name]

    @property
    def used(self) -> set[str]:
        return {name for name, known in self.texts.items() if known}

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        return {
            name: spark.createDataFrame(list(known.items()), "code long, text string")
            for name, known in self.texts.items()
            if known
        }

    def first_day(self) -> date:
        """A notification is at the earliest from the day whose key names it; a day more for clocks that differ."""
        days = [int(period.split("-")[0]) for period in self.texts["period"].values()]
        return EPOCH + timedelta(days=max(min(days, default=0) - 1, 0))


def notifications_of(spark: SparkSession, events: DataFrame) -> DataFrame:
    """One row for each notification of the events, in the table's form."""
    words = _Words()
    words.learn(transform.words_of_events(events))
    coded = transform.coded_events(events, stages=words.stages, texts=words.used)
    return transform.decoded(transform.merged(coded), names=words.frames(spark))


def merge_new_events(spark: SparkSession, lake: Lake) -> int | None:
    """Returns how many rows were written; None if there are no new events."""
    events, notifications = lake.table(EVENTS_TABLE), lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    new = events.changes_since(before.sources.get(EVENTS_TABLE.name, 0))
    if not new.added:
        return None
    rows = events.read(spark, new.added)
    words = _Words()
    words.learn(transform.words_of_events(rows))
    coded = transform.coded_events(rows, stages=words.stages, texts=words.used)
    replaced: frozenset[Partition] = frozenset()
    if before.files:
        coded = transform.merged(coded).persist()
        coded, replaced = _with_earlier_rows(spark, notifications, coded, words)
    commit = notifications.publish(
        transform.decoded(transform.merged(coded), names=words.frames(spark)),
        key=f"build-{before.number + 1}",
        replacing=replaced,
        sources={EVENTS_TABLE.name: new.number},
    )
    return sum(file.rows for file in commit.adds) if commit else None


def _with_earlier_rows(
    spark: SparkSession, notifications: LakeTable, fresh: DataFrame, words: _Words
) -> tuple[DataFrame, frozenset[Partition]]:
    """Also the rows of all partitions that have notifications which are in `fresh`, and these partitions."""
    snapshot = notifications.snapshot()
    since = words.first_day().isoformat()
    near = [each for each in snapshot.partitions if each[0] >= since]
    earlier = notifications.read(spark, snapshot.of_partitions(near))
    known = earlier.join(fresh.select(*IDENTITY), on=list(IDENTITY), how="left_semi")
    touched = frozenset(
        (str(row["day"]), str(row["hour"])) for row in known.select("day", "hour").distinct().collect()
    )
    if not touched:
        return fresh, touched
    kept = notifications.read(spark, snapshot.of_partitions(touched))
    words.learn(transform.words_of_rows(kept))
    return transform.coded_rows(kept).unionByName(fresh), touched
