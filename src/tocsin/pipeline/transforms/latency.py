"""Durations of the spans of a notification's path, by hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.pipeline.lake.kll_sketches import sketch_of
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.transforms.hour_counts import Group, HourCounts
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.pipeline.transforms.row_columns import GREATEST, LEAST, Numbers
from tocsin.pipeline.transforms.small_groups import UNPLACED, Cells
from tocsin.pipeline.transforms.table_columns import Columns, columns_of
from tocsin.pipeline.transforms.weighted_samples import joined_samples

SpanKey = tuple[Group, int]
"""A cell and the number of a span."""


def latency_hourly(counts: HourCounts, cells: Cells) -> Columns:
    """One row per hour, group and span that has any durations.

    A sketch of few values holds them exactly. So spans of few devices within a cell are counted together with those of
    other cells of the hour, and are withheld if that does not help. No other table has durations to subtract them from.
    """
    measured = np.unique(counts.samples.numbers)
    keys, number_of = _numbered(counts, cells, measured, frozenset())
    if cells.hours is not None:
        small = {
            key
            for key, size in zip(keys, _tokens(counts, number_of, len(keys)), strict=True)
            if size < cells.smallest
        }
        keys, number_of = _numbered(counts, cells, measured, small)
        large = np.array(_tokens(counts, number_of, len(keys)), np.int64) >= cells.smallest
        number_of = (
            np.where(large[number_of] & (number_of != UNPLACED), number_of, UNPLACED) if keys else number_of
        )
    placed = number_of != UNPLACED
    negative = np.zeros(len(keys), np.int64)
    least, greatest = np.full(len(keys), GREATEST, np.int64), np.full(len(keys), LEAST, np.int64)
    np.add.at(negative, number_of[placed], counts.negative[placed])
    np.minimum.at(least, number_of[placed], counts.extremes[0][placed])
    np.maximum.at(greatest, number_of[placed], counts.extremes[1][placed])
    names, rows = list(SPANS), []
    for at, values, weights in joined_samples([(counts.samples, number_of)]).each():
        group, span = keys[at]
        sketch = sketch_of(values, weights, int(least[at]), int(greatest[at]))
        rows.append((*group, names[span], int(weights.sum()), int(negative[at]), sketch))
    return columns_of(("hour", "smp_host", "provider", "leg", "n", "negative", "sketch"), rows)


def _numbered(
    counts: HourCounts, cells: Cells, measured: Numbers, small: frozenset[SpanKey] | set[SpanKey]
) -> tuple[list[SpanKey], Numbers]:
    """The spans of cells that have durations, and the number of each span of a group. Small ones share a name."""
    keys: dict[SpanKey, int] = {}
    number_of = np.full(len(counts.groups) * len(SPANS), UNPLACED, np.int64)
    for each in measured.tolist():
        cell = int(cells.number_of_group[each // len(SPANS)])
        if cell != UNPLACED:
            key = cells.cells[cell], each % len(SPANS)
            if key in small:
                key = Group(key[0].hour, SMALL_GROUPS, SMALL_GROUPS), key[1]
            number_of[each] = keys.setdefault(key, len(keys))
    return list(keys), number_of


def _tokens(counts: HourCounts, number_of: Numbers, count: int) -> Sequence[int]:
    return counts.span_tokens.united(number_of).sizes(count)
