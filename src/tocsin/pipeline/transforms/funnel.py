"""Counts of hours → the funnel with its accounting, and the reasons of ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.transforms.hour_counts import COUNTS, Group, HourCounts
from tocsin.pipeline.transforms.small_groups import UNPLACED, Cells, shown_categories
from tocsin.pipeline.transforms.table_columns import Columns, columns_of

OutcomeKey = tuple[int, Stage, str | None]
"""Cell, outcome and reason."""
WITHOUT_REASON: Final = (Stage.ACCEPTED, Stage.SUPERSEDED)


def funnel_hourly(counts: HourCounts, cells: Cells) -> Columns:
    """received = accepted + superseded + failed + shed + pending + difference."""
    placed = cells.number_of_group != UNPLACED
    sums = np.zeros((len(cells.cells), len(COUNTS)), np.int64)
    np.add.at(sums, cells.number_of_group[placed], counts.counts[placed])
    columns = {name: sums[:, at] for at, name in enumerate(COUNTS)}
    difference = columns[Stage.RECEIVED] - columns["pending"] - columns["ends_twice"]
    for end in sorted(ENDS):
        difference = difference - columns[end]
    tokens = counts.tokens_by(cells.number_of_group).sizes(len(cells.cells))
    return {**_named(cells.cells), **columns, "difference": difference, "tokens": tokens}


def outcomes_hourly(counts: HourCounts, cells: Cells) -> Columns:
    """Every end with its reason. Reasons of few devices within a cell are counted together."""
    keys: dict[OutcomeKey, int] = {}
    number_of_end = np.full(len(counts.ends), UNPLACED, np.int64)
    for at, (group, outcome, reason, _) in enumerate(counts.ends):
        cell = int(cells.number_of_group[group])
        if outcome is not None and cell != UNPLACED:
            key = cell, outcome, None if outcome is Stage.ACCEPTED else reason
            number_of_end[at] = keys.setdefault(key, len(keys))
    placed = number_of_end != UNPLACED
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, number_of_end[placed], counts.end_counts[placed])
    counted = dict(zip(keys, sums.tolist(), strict=True))
    if cells.hours is not None:
        sizes = counts.end_tokens.united(number_of_end).sizes(len(keys))
        counted = _with_large_reasons(counted, dict(zip(keys, sizes, strict=True)), cells.smallest)
    rows = [(*cells.cells[cell], outcome, reason, n) for (cell, outcome, reason), n in counted.items()]
    return columns_of(("hour", "smp_host", "provider", "outcome", "reason", "n"), rows)


def _with_large_reasons(
    counted: dict[OutcomeKey, int], sizes: dict[OutcomeKey, int], smallest: int
) -> dict[OutcomeKey, int]:
    by_outcome: dict[tuple[int, Stage], dict[str, int]] = defaultdict(dict)
    for (cell, outcome, reason), size in sizes.items():
        by_outcome[cell, outcome][reason or ""] = size
    shown = {key: shown_categories(reasons, smallest=smallest) for key, reasons in by_outcome.items()}
    found: dict[OutcomeKey, int] = defaultdict(int)
    for (cell, outcome, reason), n in counted.items():
        name = shown[cell, outcome][reason or ""]
        found[cell, outcome, None if outcome in WITHOUT_REASON else name or None] += n
    return found


def _named(cells: Sequence[Group]) -> Columns:
    return columns_of(Group._fields, cells)
