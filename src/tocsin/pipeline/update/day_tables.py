"""Counts days in tasks, and writes the files of their hourly and daily tables.

Theory of operation. Tasks count shares of files, by hour and group, and pass on a few counts and sketches for each
day. Each token of a day must be counted once, so rows of tokens meet by a part of their hash first. One task then makes
all tables of a day from its counts, because small hours are counted together with others of their day. So no process
holds more than a share of the rows, or the counts of a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.data_files import write_rows
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.lake.status_files import first_line
from tocsin.pipeline.lake.tables import (
    ENGINES_TABLE,
    EVENTS_TABLE,
    FUNNEL_TABLE,
    LATENCY_TABLE,
    NOTIFICATIONS_TABLE,
    OUTCOMES_TABLE,
    SERVERS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.spark.keyed_tasks import KeyedTasks, Piece
from tocsin.pipeline.transforms import hour_counts
from tocsin.pipeline.transforms import tokens as token_counts
from tocsin.pipeline.transforms.engines import engines_hourly
from tocsin.pipeline.transforms.funnel import funnel_hourly, outcomes_hourly
from tocsin.pipeline.transforms.hour_counts import HourCounts, count_hour, joined_counts
from tocsin.pipeline.transforms.latency import latency_hourly
from tocsin.pipeline.transforms.servers import (
    ChangedSubscriptions,
    count_subscription_changes,
    servers_hourly,
)
from tocsin.pipeline.transforms.small_groups import Cells, HourKey, cell_hours, cells_of, own_cells, sizes_of
from tocsin.pipeline.transforms.table_columns import Columns
from tocsin.pipeline.transforms.tokens import (
    NO_CHANGES,
    NO_PUSHES,
    TokenCounts,
    TokenRows,
    changes_in,
    counted_tokens,
    merged_pushes,
    pushes_in,
    tokens_daily,
)
from tocsin.pipeline.update.event_files import FILES_OF_SHARE, columns_in, parts_in, shares_of
from tocsin.pipeline.update.retention import EPOCH

ROWS_AT_ONCE: Final = 1_000_000
"""Notifications that a task counts at once. They take about 300 MB."""
TOKEN_ROWS: Final = 10_000_000
"""Notifications of a day by part of its tokens."""
CHANGE_COLUMNS: Final = ("stage", "id", "smp_host", "to_status", "queue", "token", "provider")
MADE: Final[Mapping[str, tuple[TableSpec, Callable[[DayCounts, Cells], Columns]]]] = {
    table.name: (table, make)
    for table, make in (
        (FUNNEL_TABLE, lambda day, cells: funnel_hourly(day.counts, cells)),
        (OUTCOMES_TABLE, lambda day, cells: outcomes_hourly(day.counts, cells)),
        (ENGINES_TABLE, lambda day, cells: engines_hourly(day.counts, cells)),
        (LATENCY_TABLE, lambda day, cells: latency_hourly(day.counts, cells)),
        (SERVERS_TABLE, lambda day, cells: servers_hourly(day.subscriptions, day.counts, cells)),
    )
}
"""The hourly tables, in the order in which they are built."""


@dataclass(frozen=True, slots=True)
class DayCounts:
    """Everything counted of a day."""

    counts: HourCounts
    subscriptions: Sequence[ChangedSubscriptions]
    tokens: TokenCounts


class WrittenFile(NamedTuple):
    """A file of a table."""

    table: str
    file: DataFile


class Failed(NamedTuple):
    """A table that could not be made."""

    table: str
    why: str


class SmallHour(NamedTuple):
    """A day of which all hours must be counted, because one of them has too few devices."""

    day: str


Answer = WrittenFile | Failed | SmallHour


class CountedFile(NamedTuple):
    table: str
    file: DataFile
    by_hour: bool
    """Whether hourly tables need it."""
    by_token: bool
    """Whether the daily table of tokens does."""


@dataclass(frozen=True, slots=True)
class DayPlan:
    """Which tables to make, and of which hours."""

    tables: frozenset[str]
    smallest: int
    known: Mapping[str, frozenset[int]]
    """By day: all hours with events or notifications that can be counted."""
    hours: Mapping[str, frozenset[int]]
    """By day: hours to count."""

    @property
    def newest(self) -> HourKey:
        return max((day, max(hours)) for day, hours in self.known.items())


def count_days(
    tasks: KeyedTasks, place: TablePlace, files: Sequence[CountedFile], plan: DayPlan
) -> list[Answer]:
    """`place`: the lake."""
    shares = _shares(files)
    rows: dict[str, int] = defaultdict(int)
    for each in files:
        if each.by_token:
            rows[each.file.partition[0]] += each.file.rows
    parts = 1 + max(rows.values(), default=0) // TOKEN_ROWS
    days = len({each.file.partition[0] for each in files})
    reading = _Counter(place, plan.smallest, parts)
    joining, making = _PartJoiner(plan.smallest, parts), _TableWriter(place, plan)
    found = tasks.run(shares, reading, (joining, days * (parts + 1)), (making, days))
    return [answer for _, answer in found]


def _shares(files: Iterable[CountedFile]) -> list[tuple[CountedFile, ...]]:
    """Files of one table that one task counts together. All events of an hour are together."""
    known = {(each.table, each.file.path): each for each in files}
    notifications, events = (
        [each.file for each in known.values() if each.table == table.name]
        for table in (NOTIFICATIONS_TABLE, EVENTS_TABLE)
    )
    shares = [(NOTIFICATIONS_TABLE.name, share) for share in shares_of(notifications, ROWS_AT_ONCE)]
    shares += [(EVENTS_TABLE.name, share) for share in _by_hour(events)]
    return [tuple(known[table, file.path] for file in share) for table, share in shares]


def _by_hour(files: Iterable[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """All files of an hour are in one share."""
    ordered = sorted(files, key=lambda file: file.partition)
    share: list[DataFile] = []
    for _, hour in groupby(ordered, key=lambda file: file.partition):
        share += hour
        if len(share) >= FILES_OF_SHARE:
            yield tuple(share)
            share = []
    if share:
        yield tuple(share)


@dataclass(frozen=True, slots=True)
class _Counter:
    """Runs on an executor: counts a share of the files."""

    place: TablePlace
    smallest: int
    parts: int

    def __call__(self, share: tuple[CountedFile, ...]) -> Iterator[Piece]:
        hours: dict[tuple[str, ...], list[CountedFile]] = defaultdict(list)
        for each in share:
            hours[each.file.partition].append(each)
        tokens: dict[str, list[TokenRows]] = defaultdict(list)
        counts: dict[str, list[HourCounts]] = defaultdict(list)
        for (day, hour), files in hours.items():
            if files[0].table == EVENTS_TABLE.name:
                subscriptions, changes = self._changes(files, int(hour))
                if subscriptions is not None:
                    yield self._key(day), subscriptions
                tokens[day].append(TokenRows(NO_PUSHES, changes))
                continue
            for rows in self._notifications(files):
                if files[0].by_hour:
                    counts[day].append(count_hour(rows, int(hour), enough=self.smallest))
                if files[0].by_token:
                    tokens[day].append(TokenRows(pushes_in(rows), NO_CHANGES))
        for day, found in counts.items():
            yield self._key(day), joined_counts(found, enough=self.smallest)
        for day, rows in tokens.items():
            whole = TokenRows(
                merged_pushes([each.pushes for each in rows]),
                pa.concat_tables([each.changes for each in rows]),
            )
            for part in range(self.parts):
                yield self._key(day) + 1 + part, whole.part(part, self.parts)

    def _key(self, day: str) -> int:
        return (date.fromisoformat(day) - EPOCH).days * (self.parts + 1)

    def _notifications(self, files: Sequence[CountedFile]) -> Iterator[pa.Table]:
        """Rows of an hour, from several files if they are small."""
        storage = (self.place / NOTIFICATIONS_TABLE.name).files()
        names = list(hour_counts.NEEDED) if files[0].by_hour else list(token_counts.NEEDED)
        parts, held = list[pa.Table](), 0
        for each in files:
            for part in parts_in(storage, each.file.path, names):
                parts.append(part)
                held += len(part)
                if held >= ROWS_AT_ONCE:
                    yield pa.concat_tables(parts, promote_options="default")
                    parts, held = [], 0
        if parts:
            yield pa.concat_tables(parts, promote_options="default")

    def _changes(
        self, files: Sequence[CountedFile], hour: int
    ) -> tuple[ChangedSubscriptions | None, pa.Table]:
        storage = (self.place / EVENTS_TABLE.name).files()
        found = []
        for each in files:
            rows = columns_in(storage, each.file.path, CHANGE_COLUMNS)
            of_change = pc.is_in(
                rows["stage"].cast(pa.string()), pa.array([Stage.SUBSCRIPTION_CHANGED, Stage.TOKEN_CHANGED])
            )
            found.append(rows.filter(of_change))
        rows = pa.concat_tables(found, promote_options="default")
        stage = rows["stage"].cast(pa.string())
        subscriptions, changes = None, NO_CHANGES
        if files[0].by_hour:
            here = rows.filter(pc.equal(stage, Stage.SUBSCRIPTION_CHANGED))
            subscriptions = count_subscription_changes(here, hour) if len(here) else None
        if files[0].by_token:
            changes = changes_in(rows.filter(pc.equal(stage, Stage.TOKEN_CHANGED)))
        return subscriptions, changes


@dataclass(frozen=True, slots=True)
class _PartJoiner:
    """Runs on an executor: joins counts of a day, or counts a part of its tokens."""

    smallest: int
    parts: int

    def __call__(self, key: int, values: list[Any]) -> Iterator[Piece]:
        day, part = divmod(key, self.parts + 1)
        if part:
            yield day, counted_tokens(values)
            return
        yield (
            day,
            joined_counts((each for each in values if isinstance(each, HourCounts)), enough=self.smallest),
        )
        yield from ((day, each) for each in values if isinstance(each, ChangedSubscriptions))


@dataclass(frozen=True, slots=True)
class _TableWriter:
    """Runs on an executor: makes all tables of a day, and writes their files."""

    place: TablePlace
    plan: DayPlan

    def __call__(self, key: int, values: list[Any]) -> Iterator[Piece]:
        day = (EPOCH + timedelta(days=key)).isoformat()
        found = DayCounts(
            joined_counts(
                (each for each in values if isinstance(each, HourCounts)), enough=self.plan.smallest
            ),
            [each for each in values if isinstance(each, ChangedSubscriptions)],
            sum((each for each in values if isinstance(each, TokenCounts)), TokenCounts()),
        )
        for answer in self._tables(day, found):
            yield key, answer

    def _tables(self, day: str, found: DayCounts) -> Iterator[Answer]:
        hourly = [each for each in MADE if each in self.plan.tables and day in self.plan.hours]
        try:
            cells = self._cells(day, found.counts) if hourly else None
        except Exception as error:  # whatever NumPy raises
            yield from (Failed(name, first_line(error)) for name in hourly)
        else:
            if cells is not None:
                for name in hourly:
                    table, make = MADE[name]
                    yield from self._written(table, day, partial(make, found, cells))
            elif hourly:
                yield SmallHour(day)
        if TOKENS_TABLE.name in self.plan.tables:
            make_tokens = partial(tokens_daily, found.tokens, smallest=self.plan.smallest)
            yield from self._written(TOKENS_TABLE, day, make_tokens)

    def _cells(self, day: str, counts: HourCounts) -> Cells | None:
        """None if an hour has too few devices, and others of its day are not counted."""
        smallest, known, counted = self.plan.smallest, self.plan.known, self.plan.hours.get(day, frozenset())
        if smallest <= 1:
            return own_cells(counts)
        sizes, newest = sizes_of(counts), self.plan.newest
        small = {hour for hour in counted if sizes.by_hour.get(hour, 0) < smallest and (day, hour) != newest}
        if small and not known[day] <= counted:
            return None
        found = cell_hours(
            {(day, hour): size for hour, size in sizes.by_hour.items()},
            {day: sizes.whole},
            [(day, hour) for hour in known.get(day, ())],
            newest=newest,
            smallest=smallest,
        )
        hours = {hour: cell for (_, hour), cell in found.items()}
        return cells_of(counts, hours, by_queue=sizes.by_queue, smallest=smallest)

    def _written(self, table: TableSpec, day: str, make: Callable[[], Columns]) -> Iterator[Answer]:
        try:
            columns = make()
            schema = to_arrow_schema(table.schema)
            size = len(next(iter(columns.values())))
            days = pa.array([date.fromisoformat(day)] * size, pa.date32())
            rows = pa.table(
                [
                    days if field.name == "day" else pa.array(columns[field.name], field.type)
                    for field in schema
                ],
                schema=schema,
            )
            yield from (
                WrittenFile(table.name, file)
                for file in write_rows(rows, self.place / table.name, table, "rows-1")
            )
        except Exception as error:  # the other tables are made
            yield Failed(table.name, first_line(error))
