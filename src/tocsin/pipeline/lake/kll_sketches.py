"""Quantiles of KLL sketches of 64-bit numbers, as `latency_hourly` holds them, without Spark.

A sketch keeps some of the values it was given; each stands for a power of two of them. Merging sketches means joining
their values. Format: Apache DataSketches, `KllLongsSketch`, compact serialization (`KllPreambleUtil`), little-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.weighted_values import WeightedValues

_FAMILY: Final = 15
_EMPTY: Final = 1
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
