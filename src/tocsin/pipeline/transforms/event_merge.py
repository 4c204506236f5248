"""Events → one row per notification, and rows merged with rows, with NumPy and PyArrow.

Every column of a row is the least or the greatest of its values over the events, so neither order nor repetition of
events and rows matters. Texts are compared by their hashes. A column that no row would have a value in is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import HASHES
from tocsin.pipeline.schemas.notifications import IDENTITY, MOMENTS, STAGES, TEXTS, moment
from tocsin.pipeline.transforms.notifications import BAD_ENDS, PUSHED_ENDS
from tocsin.pipeline.transforms.row_columns import (
    GREATEST,
    LEAST,
    TEXT,
    Numbers,
    column_of,
    numbers_of,
    text_column,
    texts_of,
)

STAGE: Final = "stage"
READ_TEXTS: Final = (STAGE, *TEXTS)
"""Columns that are read as dictionaries."""
READ: Final = (*IDENTITY, *HASHES, *READ_TEXTS, "at", "size", "attempt")
"""The columns of events that count."""
COUNTS_AT: Final[Mapping[str, Collection[Stage]]] = {"reason": BAD_ENDS, "engine": PUSHED_ENDS}
LAST_RECEIVED: Final = "last_received_at"


def merged_events(events: pa.Table) -> pa.Table:
    """`events` has the columns of READ. Returns the columns of `notifications` without day and hour; as long as more
    rows may be merged, `last_received_at` is that of every notification that was received.
    """
    codes, stages = texts_of(events[STAGE])
    if others := [code for code, stage in enumerate(stages) if stage not in STAGES]:
        about_one = ~np.isin(codes, others)  # other events are about tokens and subscriptions
        events, codes = events.filter(pa.array(about_one)), codes[about_one]
    high, low = (numbers_of(events[name]) for name in IDENTITY)
    index, first = _numbered_ids(high, low)
    count, at = len(first), numbers_of(events["at"])
    rows_at = {
        Stage(stage): np.flatnonzero(codes == code) for code, stage in enumerate(stages) if stage in STAGES
    }
    at_stage = {stage: rows for stage, rows in rows_at.items() if len(rows)}
    merged = {IDENTITY[0]: pa.array(high[first]), IDENTITY[1]: pa.array(low[first])}
    for name in (*HASHES, "size"):
        merged[name] = column_of(_greatest(count, index, numbers_of(events[name])), LEAST)
    for name in TEXTS:
        column = _merged_texts(events[name], name, count, index, at_stage)
        if column is not None:
            merged[name] = column
    attempts = np.zeros(count, np.int64)
    if (tried := at_stage.get(Stage.ATTEMPTED)) is not None:
        np.maximum.at(attempts, index[tried], numbers_of(events["attempt"], 0)[tried])
    merged["attempts"] = pa.array(attempts)
    for stage, rows in at_stage.items():
        merged[moment(stage)] = column_of(_least(count, index[rows], at[rows]), GREATEST)
        if stage == Stage.RECEIVED:
            merged[LAST_RECEIVED] = column_of(_greatest(count, index[rows], at[rows]), LEAST)
    return pa.table(merged)


def merged_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each notification. The tables are results of `merged_events`, of `rows_to_merge` or of this."""
    whole = _united(tables)
    high, low = (numbers_of(whole[name]) for name in IDENTITY)
    index, first = _numbered_ids(high, low)
    if len(first) == len(index):
        return whole
    several = np.bincount(index, minlength=len(first))[index] > 1
    return _united([whole.filter(pa.array(~several)), _merged(whole.filter(pa.array(several)))])


def rows_to_merge(rows: pa.Table) -> pa.Table:
    """Rows of the table `notifications`, ready to merge."""
    kept = rows.select([name for name in rows.column_names if name not in ("day", "hour")])
    received = moment(Stage.RECEIVED)
    if received not in kept.column_names:
        return kept
    last = kept[received]
    if LAST_RECEIVED in kept.column_names:
        last = pc.coalesce(kept[LAST_RECEIVED], last)
        kept = kept.drop_columns([LAST_RECEIVED])
    return kept.append_column(LAST_RECEIVED, last)


def finished_rows(merged: pa.Table) -> tuple[pa.Table, Numbers]:
    """Merged rows in the table's form, without day and hour, and the time of each one's first event."""
    first = np.full(len(merged), GREATEST, np.int64)
    for name in MOMENTS:
        if name in merged.column_names:
            np.minimum(first, numbers_of(merged[name], GREATEST), out=first)
    if LAST_RECEIVED in merged.column_names:
        last = numbers_of(merged[LAST_RECEIVED])
        again = last > numbers_of(merged[moment(Stage.RECEIVED)], GREATEST)
        at = merged.column_names.index(LAST_RECEIVED)
        merged = merged.remove_column(at)
        if again.any():
            merged = merged.append_column(LAST_RECEIVED, column_of(np.where(again, last, LEAST), LEAST))
    return merged, first


def _numbered_ids(high: Numbers, low: Numbers) -> tuple[Numbers, Numbers]:
    """The number of each row's notification, and the row of each notification's first occurrence."""
    order = np.argsort(low)
    index, first = _numbered_in(order, low[order][1:] != low[order][:-1])
    if (high[first][index] != high).any():  # two notifications share one half of their hashes
        order = np.lexsort((high, low))
        lows, highs = low[order], high[order]
        index, first = _numbered_in(order, (lows[1:] != lows[:-1]) | (highs[1:] != highs[:-1]))
    return index, first


def _numbered_in(order: Numbers, differs: np.typing.NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """`differs`: whether each row, in this order, is about another notification than the one before it."""
    starts = np.concatenate([np.ones(min(len(order), 1), bool), differs])
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(starts) - 1
    return index, order[starts]


def _greatest(count: int, index: Numbers, values: Numbers) -> Numbers:
    found = np.full(count, LEAST, np.int64)
    np.maximum.at(found, index, values)
    return found


def _least(count: int, index: Numbers, values: Numbers) -> Numbers:
    found = np.full(count, GREATEST, np.int64)
    np.minimum.at(found, index, values)
    return found


def _merged_texts(
    column: pa.ChunkedArray, name: str, count: int, index: Numbers, at_stage: Mapping[Stage, Numbers]
) -> pa.Array | None:
    """None if no row has a text that counts."""
    codes, texts = texts_of(column)
    if not texts:
        return None
    found = np.full(count, -1, np.int32)
    if name in COUNTS_AT:
        for end in COUNTS_AT[name]:
            if (rows := at_stage.get(end)) is not None:
                np.maximum.at(found, index[rows], codes[rows])
    elif len(texts) == 1 and not column.null_count:
        found[:] = 0
    else:
        np.maximum.at(found, index, codes)
    return text_column(found, texts) if found.max(initial=-1) >= 0 else None


def _united(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, in one piece, with the columns of any of the tables in the order of the table `notifications`."""
    known = {name: (TEXT if name in TEXTS else pa.int64()) for each in tables for name in each.column_names}
    form = pa.schema([(name, known[name]) for name in ORDER if name in known])
    whole = pa.concat_tables([in_form(each, form) for each in tables])
    return whole.unify_dictionaries().combine_chunks()


def in_form(rows: pa.Table, form: pa.Schema) -> pa.Table:
    """The columns of the form in its order, null where the rows have none."""
    known = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in known else pa.nulls(len(rows), field.type)
        for field in form
    ]
    return pa.table(columns, schema=form)


def _merged(rows: pa.Table) -> pa.Table:
    """For rows that are few compared with all."""
    texts: dict[str, list[str]] = {}
    columns: dict[str, pa.Array] = {}
    for name in rows.column_names:
        columns[name] = rows[name]
        if name in TEXTS:
            codes, texts[name] = texts_of(rows[name])
            columns[name] = pa.array(codes)
    rules = [(name, "min" if name in MOMENTS else "max") for name in columns if name not in IDENTITY]
    merged = pa.table(columns).group_by(list(IDENTITY), use_threads=False).aggregate(rules)
    merged = merged.rename_columns([*IDENTITY, *(name for name, _ in rules)])
    for name, known in texts.items():
        at = merged.column_names.index(name)
        codes = merged[name].to_numpy()
        merged = merged.set_column(at, name, text_column(codes, known))
    return merged


ORDER: Final = (*IDENTITY, *HASHES, *TEXTS, "size", "attempts", LAST_RECEIVED, *MOMENTS)
