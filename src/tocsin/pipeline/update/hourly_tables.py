"""Rebuilds hourly and daily tables for the partitions whose events or notifications changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import SparkSession

from tocsin.errors import StoreError
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.commits import DataFile, OvertakenError, Partition, TableSnapshot
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import first_line
from tocsin.pipeline.lake.tables import (
    EVENTS_TABLE,
    FUNNEL_TABLE,
    NOTIFICATIONS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.update.day_tables import (
    MADE,
    Answer,
    CountedFile,
    DayPlan,
    Failed,
    SmallHour,
    WrittenFile,
    count_days,
)
from tocsin.pipeline.update.event_files import FileNotes, notes_on
from tocsin.pipeline.update.notification_merge import tasks_for
from tocsin.pipeline.update.retention import rebuildable

SMALLEST_GROUP: Final = 10
THRESHOLD: Final = "smallest_group"
"""Recorded like a source in commits: a table is rebuilt completely if the threshold changes."""
BUILT: Final[tuple[TableSpec, ...]] = (*(table for table, _ in MADE.values()), TOKENS_TABLE)


@dataclass(frozen=True, slots=True)
class _Outdated:
    """The partitions of a table to rebuild, and the sources that the new rows include."""

    partitions: frozenset[Partition]
    sources: Mapping[str, int]
    table: TableSnapshot
    """The state that the new rows replace."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """New files by table, the partitions that they replace, and failures by table."""

    files: Mapping[str, Sequence[DataFile]]
    hours: frozenset[Partition]
    days: frozenset[Partition]
    failures: Mapping[str, str]


def smallest_group_of(lake: Lake) -> int:
    """The threshold with which the tables were counted last, or the usual one."""
    return lake.table(FUNNEL_TABLE).snapshot().sources.get(THRESHOLD, SMALLEST_GROUP)


class HourlyTables:
    """One build. All tables that are not up to date are counted in one pass."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        smallest_group: int | None,
        *,
        from_day: date | None = None,
        known: Mapping[str, FileNotes] | None = None,
    ) -> None:
        """`smallest_group`: None for that of the tables. `from_day`: also rebuilds all partitions from that day on.

        `known`: files of events that were read.
        """
        self._spark = spark
        self._lake = lake
        self._smallest = smallest_group or smallest_group_of(lake)
        self._from = from_day
        self._notes = dict(known or {})
        self.failures: dict[str, str] = {}
        """By table: why it could not be built."""

    def build(self, step: Callable[[str], None]) -> Iterator[tuple[str, int]]:
        """Yields name and rows written of each table that was not up to date. One that fails does not stop others."""
        outdated: dict[str, _Outdated] = {}
        for table in BUILT:
            with self._noting(table):
                if (found := self._outdated(table)) is not None:
                    outdated[table.name] = found
        counted: _Counted | None = None
        for table in BUILT:
            step(table.name)
            if table.name not in outdated:
                continue
            rows: int | None = None
            with self._noting(table):
                counted = counted or self._counted(outdated)
                rows = self._replace(table, outdated[table.name], counted)
            if rows is not None:
                yield table.name, rows

    @contextmanager
    def _noting(self, table: TableSpec) -> Iterator[None]:
        """Notes why a table could not be built, and lets the others be built."""
        try:
            yield
        except OvertakenError:
            raise
        except Exception as error:  # whatever Spark or the storage raises
            self.failures[table.name] = first_line(error)

    def _replace(self, table: TableSpec, outdated: _Outdated, counted: _Counted) -> int:
        if (why := counted.failures.get(table.name)) is not None:
            raise StoreError(why)
        commit = self._lake.table(table).publish(
            counted.files.get(table.name, ()),
            replacing=counted.days if table is TOKENS_TABLE else counted.hours,
            sources=outdated.sources,
            based_on=outdated.table,
        )
        return commit.rows if commit else 0

    def _outdated(self, table: TableSpec) -> _Outdated | None:
        before = self._lake.table(table).snapshot()
        done = before.sources
        rebuild = done.get(THRESHOLD, self._smallest) != self._smallest
        sources = {THRESHOLD: self._smallest}
        touched: set[Partition] = set()
        for source in (EVENTS_TABLE, NOTIFICATIONS_TABLE):
            changes = self._lake.table(source).changes_since(0 if rebuild else done.get(source.name, 0))
            sources[source.name] = changes.number
            touched.update(partition[: len(table.partitioned_by)] for partition in changes.partitions)
        if self._from is not None:
            touched |= self._since(self._from, len(table.partitioned_by))
        partitions = rebuildable(self._lake, touched)
        return _Outdated(partitions, sources, before) if partitions else None

    def _since(self, day: date, depth: int) -> set[Partition]:
        every = (self._lake.table(each).snapshot().partitions for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
        return {each[:depth] for partitions in every for each in partitions if each[0] >= day.isoformat()}

    def _counted(self, outdated: Mapping[str, _Outdated]) -> _Counted:
        """A failure of the tasks is one of all tables. They are not tried again for each."""
        try:
            return self._count(outdated)
        except Exception as error:  # whatever Spark or the storage raises
            return _Counted({}, frozenset(), frozenset(), dict.fromkeys(outdated, first_line(error)))

    def _count(self, outdated: Mapping[str, _Outdated]) -> _Counted:
        """Hourly tables are counted for the same hours: nearly always, the same ones changed for all of them."""
        hourly = frozenset(outdated) - {TOKENS_TABLE.name}
        known = self._known_hours()
        days = outdated[TOKENS_TABLE.name].partitions if TOKENS_TABLE.name in outdated else frozenset()
        hours = frozenset(hour for name in hourly for hour in outdated[name].partitions)
        hours = _with_days(hours, known, self._folded_days(hours, known))
        answers = self._answers(hours, days, frozenset(outdated), known)
        small = {each.day for each in answers if isinstance(each, SmallHour)}
        if small:  # an hour turned out to be too small: its whole day is counted
            whole = _with_days(frozenset(), known, small)
            answers += self._answers(whole, frozenset(), hourly, known)
            hours |= whole
        files: dict[str, list[DataFile]] = defaultdict(list)
        for each in answers:
            if isinstance(each, WrittenFile):
                files[each.table].append(each.file)
        return _Counted(
            files, hours, days, {each.table: each.why for each in answers if isinstance(each, Failed)}
        )

    def _answers(
        self, hours: Set[Partition], days: Set[Partition], tables: frozenset[str], known: frozenset[Partition]
    ) -> list[Answer]:
        files = self._files(hours, days)
        plan = DayPlan(tables, self._smallest, _by_day(known), _by_day(hours))
        return count_days(
            tasks_for(self._spark, [each.file for each in files]), self._lake.place, files, plan
        )

    def _files(self, hours: Set[Partition], days: Set[Partition]) -> list[CountedFile]:
        """Takes only the files of events with changes, which are few: opening a file costs more than its rows."""
        chosen = []
        for table in (NOTIFICATIONS_TABLE, EVENTS_TABLE):
            for file in self._lake.table(table).snapshot().of_partitions({*hours, *days}):
                by_token = file.partition[:1] in days
                chosen.append(CountedFile(table.name, file, file.partition in hours, by_token))
        events = [each.file for each in chosen if each.table == EVENTS_TABLE.name]
        unknown = [file for file in events if file.path not in self._notes]
        place = self._lake.table(EVENTS_TABLE).place
        self._notes |= notes_on(tasks_for(self._spark, unknown), place, unknown)
        return [each for each in chosen if each.table != EVENTS_TABLE.name or self._has_changes(each)]

    def _has_changes(self, each: CountedFile) -> bool:
        stages = self._notes[each.file.path].stages
        return (each.by_hour and Stage.SUBSCRIPTION_CHANGED in stages) or (
            each.by_token and Stage.TOKEN_CHANGED in stages
        )

    def _folded_days(self, hours: Set[Partition], known: frozenset[Partition]) -> set[str]:
        """Days with hours that have no rows of their own in `funnel_hourly`, apart from those to rebuild.

        Such an hour is counted with another one, or may have to be.
        """
        if self._smallest <= 1:
            return set()
        shown = self._lake.table(FUNNEL_TABLE).snapshot().partitions
        return {day for day, _ in known - shown - hours} & {day for day, _ in hours}

    def _known_hours(self) -> frozenset[Partition]:
        """All hours with events or notifications that can be counted."""
        tables = (self._lake.table(each).snapshot() for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
        return rebuildable(self._lake, (each for snapshot in tables for each in snapshot.partitions))


def _with_days(
    hours: frozenset[Partition], known: Iterable[Partition], days: Set[str]
) -> frozenset[Partition]:
    return hours | frozenset(each for each in known if each[0] in days)


def _by_day(partitions: Iterable[Partition]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for day, hour in partitions:
        found[day].add(int(hour))
    return {day: frozenset(hours) for day, hours in found.items()}
