"""Quantiles of KLL sketches of 64-bit numbers, as `latency_hourly` holds them, without Spark.

A sketch keeps some of the values it was given; each stands for a power of two of them. Merging sketches means joining
their values. Format: Apache DataSketches, `KllLongsSketch`, compact serialization (`KllPreambleUtil`), little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

_FAMILY: Final = 15
_EMPTY: Final = 1
_HEAD: Final = struct.Struct("<BBBBHBB")  # preamble ints, version, family, flags, k, m, unused
_FULL: Final = struct.Struct("<QHBB")  # n, least k, levels, unused
_SINGLE_VERSION: Final = 2
_COMPACT_VERSIONS: Final = (1, 2)


def weighted_values(sketch: bytes) -> list[tuple[int, int]]:
    """Pairs of a value and the number it stands for. Raises ValueError if the bytes are not such a sketch."""
    try:
        return _values(sketch)
    except struct.error as error:
        raise ValueError("the sketch is truncated") from error


def _values(sketch: bytes) -> list[tuple[int, int]]:
    _, version, family, flags, k, _, _ = _HEAD.unpack_from(sketch)
    if family != _FAMILY or version not in _COMPACT_VERSIONS:
        raise ValueError("not a KLL sketch in its compact form")
    if flags & _EMPTY:
        return []
    if version == _SINGLE_VERSION:
        [value] = struct.unpack_from("<q", sketch, _HEAD.size)
        return [(value, 1)]
    n, _, levels, _ = _FULL.unpack_from(sketch, _HEAD.size)
    starts_at = _HEAD.size + _FULL.size
    starts = struct.unpack_from(f"<{levels}i", sketch, starts_at)
    values_at = starts_at + 4 * levels + 16  # after minimum and maximum
    count = (len(sketch) - values_at) // 8
    values = struct.unpack_from(f"<{count}q", sketch, values_at)
    ends = [*(start - starts[0] for start in starts[1:]), count]
    found = []
    begin = 0
    for level, end in enumerate(ends):
        found += [(value, 1 << level) for value in values[begin:end]]
        begin = end
    if sum(weight for _, weight in found) != n:
        raise ValueError(f"the sketch says {n} values but its weights add up to another number (k = {k})")
    return found


def weighted_quantiles(sketches: Iterable[bytes], ranks: Sequence[float]) -> list[int]:
    """For each rank, the least value with at least that share of all values at or below it; 0 if all are empty."""
    values = sorted(each for sketch in sketches for each in weighted_values(sketch))
    whole = sum(weight for _, weight in values)
    found = []
    for rank in ranks:
        below, answer = 0, 0
        for value, weight in values:
            below, answer = below + weight, value
            if below >= rank * whole:
                break
        found.append(answer)
    return found
