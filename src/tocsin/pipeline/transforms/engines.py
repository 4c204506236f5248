"""Ends of notifications by the engine that pushed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.transforms.hour_counts import HourCounts
from tocsin.pipeline.transforms.row_columns import Numbers
from tocsin.pipeline.transforms.small_groups import UNPLACED, Cells
from tocsin.pipeline.transforms.table_columns import Columns, columns_of

ENDED: Final = (Stage.ACCEPTED, Stage.FAILED)
EngineKey = tuple[int, str | None]
"""Hour and engine, None if the notification ended without a push."""


def engines_hourly(counts: HourCounts, cells: Cells) -> Columns:
    """Accepted and failed notifications by engine. An hour in which an engine has few devices shows all in one row.

    Ends without a push are counted like those of an engine, or their number would follow from the other tables.
    """
    keys, number_of_end = _by_engine(counts, cells, lambda hour, engine: (hour, engine))
    sizes = counts.end_tokens.united(number_of_end).sizes(len(keys))
    if cells.hours is not None:
        few = {hour for (hour, _), size in zip(keys, sizes, strict=True) if size < cells.smallest}
        keys, number_of_end = _by_engine(
            counts, cells, lambda hour, engine: (hour, SMALL_GROUPS if hour in few else engine)
        )
        sizes = counts.end_tokens.united(number_of_end).sizes(len(keys))
    sums = []
    for outcome in ENDED:
        here = (number_of_end != UNPLACED) & np.array([end.outcome == outcome for end in counts.ends], bool)
        each = np.zeros(len(keys), np.int64)
        np.add.at(each, number_of_end[here], counts.end_counts[here])
        sums.append(each)
    named = columns_of(("hour", "engine"), keys)
    return {**named, **dict(zip(map(str, ENDED), sums, strict=True)), "tokens": sizes}


def _by_engine(
    counts: HourCounts, cells: Cells, name: Callable[[int, str | None], EngineKey]
) -> tuple[list[EngineKey], Numbers]:
    """The names that occur, and the number of each end's name."""
    keys: dict[EngineKey, int] = {}
    number_of_end = np.full(len(counts.ends), UNPLACED, np.int64)
    for at, (group, outcome, _, engine) in enumerate(counts.ends):
        cell = int(cells.number_of_group[group])
        if outcome in ENDED and cell != UNPLACED:
            number_of_end[at] = keys.setdefault(name(cells.cells[cell].hour, engine), len(keys))
    return list(keys), number_of_end
