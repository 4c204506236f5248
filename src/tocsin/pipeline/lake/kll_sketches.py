"""Quantiles of KLL sketches of 64-bit numbers, as `latency_hourly` holds them, without Spark.

A sketch keeps some of the values it was given; each stands for a power of two of them. Merging sketches means joining
their values. Format: Apache DataSketches, `KllLongsSketch`, compact serialization (`KllPreambleUtil`), little-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tocsin.pipeline.lake.weighted_values import WeightedValues

_FAMILY: Final = 15
_EMPTY: Final = 1
_SORTED: Final = 2
"""The values that stand for themselves are in order."""
_SINGLE: Final = 4
K: Final = 200
"""Ranks are accurate to about 1 %."""
M: Final = 8
"""The least room of a level."""
_HEAD: Final = struct.Struct("<BBBBHBB")  # preamble ints, version, family, flags, k, m, unused
_FULL: Final = struct.Struct("<QHBB")  # n, least k, levels, unused
_SINGLE_VERSION: Final = 2
_COMPACT_VERSIONS: Final = (1, 2)
_AT_ONCE: Final = 1 << 18
"""Values that are taken from sketches before they are merged."""


class MergedSketches:
    """The values of many sketches, in memory of a fixed size."""

    def __init__(self) -> None:
        self._whole = WeightedValues()
        self._values, self._weights = array("q"), array("q")

    def add(self, sketch: bytes) -> None:
        """Raises ValueError if the bytes are not such a sketch."""
        try:
            _take(sketch, self._values, self._weights)
        except struct.error as error:
            raise ValueError("the sketch is truncated") from error
        if len(self._values) >= _AT_ONCE:
            self._merge()

    def quantiles(self, ranks: Sequence[float]) -> list[int]:
        """For each rank, the least value with at least that share of all values at or below it; 0 without values."""
        self._merge()
        return self._whole.quantiles(ranks)

    def _merge(self) -> None:
        if self._values:
            values, weights = (
                pa.Array.from_buffers(pa.int64(), len(each), [None, pa.py_buffer(each)])
                for each in (self._values, self._weights)
            )
            self._whole.add(values, weights)
            self._values, self._weights = array("q"), array("q")


def weighted_quantiles(sketches: Iterable[bytes], ranks: Sequence[float]) -> list[int]:
    """See MergedSketches.quantiles."""
    merged = MergedSketches()
    for sketch in sketches:
        merged.add(sketch)
    return merged.quantiles(ranks)


def sketch_of(values: NDArray[np.int64], weights: NDArray[np.int64], least: int, greatest: int) -> bytes:
    """A sketch of sorted values, each of which stands for a number of values. `least` and `greatest`: of all values."""
    n = int(weights.sum())
    if n == 1:
        return _HEAD.pack(2, _SINGLE_VERSION, _FAMILY, _SINGLE | _SORTED, K, M, 0) + struct.pack("<q", least)
    if n > K:
        values, weights = cut_sample(values, weights, K)
    levels = int(weights.max()).bit_length()
    if levels > 1:  # the lowest level is first
        order = np.argsort(weights, kind="stable")
        values, weights = values[order], weights[order]
    capacity = _capacity(levels)
    starts = capacity - len(values) + np.searchsorted(weights, 1 << np.arange(levels))
    return b"".join(
        (
            _HEAD.pack(5, 1, _FAMILY, _SORTED, K, M, 0),
            _FULL.pack(n, K, levels, 0),
            starts.astype("<i4").tobytes(),
            struct.pack("<qq", least, greatest),
            values.astype("<i8", copy=False).tobytes(),
        )
    )


def cut_sample(
    values: NDArray[np.int64], weights: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most about as many of the values. Weights are powers of two and become smaller towards the greatest values."""
    whole = int(weights.sum())
    size = 0
    while whole >> size > most:
        size += 1
    runs, rest = whole >> size, whole & ((1 << size) - 1)
    bits = [bit for bit in range(size - 1, -1, -1) if rest >> bit & 1]
    lengths = np.concatenate([np.full(runs, 1 << size), np.array([1 << bit for bit in bits], np.int64)])
    middles = np.cumsum(lengths) - lengths + (lengths - 1) // 2
    if len(values) == whole:
        return values[middles], lengths
    return values[np.searchsorted(np.cumsum(weights), middles, side="right")], lengths


@cache
def _capacity(levels: int) -> int:
    """The number of values for which readers make room (`KllHelper.computeTotalItemCapacity`)."""
    return sum(max(M, (((K << 1) << depth) // 3**depth + 1) >> 1) for depth in range(levels))


def _take(sketch: bytes, values: array[int], weights: array[int]) -> None:
    """Appends the sketch's values, and the number that each stands for."""
    _, version, family, flags, k, _, _ = _HEAD.unpack_from(sketch)
    if family != _FAMILY or version not in _COMPACT_VERSIONS:
        raise ValueError("not a KLL sketch in its compact form")
    if flags & _EMPTY:
        return
    if version == _SINGLE_VERSION:
        values.extend(struct.unpack_from("<q", sketch, _HEAD.size))
        weights.append(1)
        return
    n, _, levels, _ = _FULL.unpack_from(sketch, _HEAD.size)
    starts_at = _HEAD.size + _FULL.size
    starts = struct.unpack_from(f"<{levels}i", sketch, starts_at)
    values_at = starts_at + 4 * levels + 16  # after minimum and maximum
    count = (len(sketch) - values_at) // 8
    found = array("q", sketch[values_at : values_at + 8 * max(count, 0)])
    if sys.byteorder == "big":
        found.byteswap()
    each = array("q")
    ends = [*(start - starts[0] for start in starts[1:]), count]
    begin = 0
    for level, end in enumerate(ends):
        each.extend(array("q", [1 << level]) * max(end - begin, 0))
        begin = end
    if len(each) != len(found) or sum(each) != n:
        raise ValueError(f"the sketch says {n} values but its weights add up to another number (k = {k})")
    values.extend(found)
    weights.extend(each)
