"""Samples of many sets of durations at once: sorted values, each of which stands for a number of neighbours.

A set is cut into runs of neighbours, and the middle one of each run is kept. So a rank is wrong by half a run at most,
once for each time that samples are merged and cut again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from tocsin.pipeline.lake.kll_sketches import cut_sample
from tocsin.pipeline.transforms.row_columns import Numbers

KEPT: Final = 400
"""Values of a set before it is written: ranks are wrong by about 0.2 % of the values."""
VALUE_BITS: Final = 44
"""Durations of up to half a year are sorted together with the number of their set."""


@dataclass(frozen=True, slots=True)
class WeightedSamples:
    """Samples by number, sorted by number and value."""

    numbers: Numbers
    values: Numbers
    weights: Numbers

    def each(self) -> Iterator[tuple[int, Numbers, Numbers]]:
        """Number, values and weights of each sample."""
        starts = np.flatnonzero(np.diff(self.numbers, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(self.numbers)]):
            yield int(self.numbers[start]), self.values[start:end], self.weights[start:end]


def samples_of(numbers: Numbers, durations: Numbers) -> WeightedSamples:
    """From pairs of a set's number and a duration that is not negative, in any order."""
    if (
        len(durations)
        and int(durations.max()) < 1 << VALUE_BITS
        and int(numbers.max()) < 1 << (63 - VALUE_BITS)
    ):
        both = np.sort((numbers << VALUE_BITS) | durations)  # much faster than finding the order
        numbers, durations = both >> VALUE_BITS, both & ((1 << VALUE_BITS) - 1)
    else:
        order = np.lexsort((durations, numbers))
        numbers, durations = numbers[order], durations[order]
    return _cut(WeightedSamples(numbers, durations, np.ones(len(durations), np.int64)))


def joined_samples(parts: Iterable[tuple[WeightedSamples, Numbers]]) -> WeightedSamples:
    """Merges samples of several parts, each with the new numbers of its sets. Those below 0 are left out."""
    found = list(parts)
    numbers = np.concatenate(
        [number_of[each.numbers] for each, number_of in found] or [np.empty(0, np.int64)]
    )
    values = np.concatenate([each.values for each, _ in found] or [np.empty(0, np.int64)])
    weights = np.concatenate([each.weights for each, _ in found] or [np.empty(0, np.int64)])
    if (numbers < 0).any():
        kept = numbers >= 0
        numbers, values, weights = numbers[kept], values[kept], weights[kept]
    if int(weights.max(initial=1)) == 1:
        return samples_of(numbers, values)
    order = np.lexsort((values, numbers))
    return _cut(WeightedSamples(numbers[order], values[order], weights[order]))


def _cut(samples: WeightedSamples) -> WeightedSamples:
    """Cuts the samples that have become too large."""
    starts = np.flatnonzero(np.diff(samples.numbers, prepend=-1))
    if int(np.diff(starts, append=len(samples.numbers)).max(initial=0)) <= 2 * KEPT:
        return samples
    parts = []
    for number, values, weights in samples.each():
        if len(values) > 2 * KEPT:
            values, weights = cut_sample(values, weights, KEPT)
        parts.append((np.full(len(values), number, np.int64), values, weights))
    return WeightedSamples(*(np.concatenate(each) for each in zip(*parts, strict=True)))
