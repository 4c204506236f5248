"""Quantiles in memory of a fixed size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.pipeline.lake.weighted_values import WeightedValues

RANKS = (0.0, 0.01, 0.07, 0.5, 0.95, 1.0)
NUMBERS = st.integers(-(2**40), 2**40)


def exact(numbers: Sequence[int], rank: float) -> int:
    return sorted(numbers)[max(0, math.ceil(round(rank * len(numbers), 6)) - 1)]


@given(st.lists(st.lists(NUMBERS, min_size=1), min_size=1, max_size=5))
def test_quantiles_of_few_values_are_exact_in_any_parts(parts: list[list[int]]) -> None:
    whole = WeightedValues()
    for part in parts:
        whole.add(pa.array(part, pa.int64()))
    numbers = [number for part in parts for number in part]
    assert whole.quantiles(RANKS) == [exact(numbers, rank) for rank in RANKS]


def test_a_value_counts_as_often_as_its_weight_says() -> None:
    whole = WeightedValues()
    whole.add(pa.array([5, 1], pa.int64()), pa.array([3, 1], pa.int64()))
    assert whole.quantiles((0.25, 0.26)) == [1, 5]
    assert WeightedValues().quantiles((0.5,)) == [0]


def test_a_share_of_a_hundred_values_is_no_value_too_many() -> None:
    whole = WeightedValues()
    whole.add(pa.array(range(1, 101), pa.int64()))
    assert whole.quantiles((0.07, 0.29)) == [7, 29]  # 0.07 * 100 is a little more than 7


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_many_distinct_values_lose_low_bits_and_no_more_memory_is_used(count: int) -> None:
    numbers = [number * 7919 % 1_000_003 for number in range(count)]
    whole = WeightedValues(most=1_000)
    for start in range(0, count, 500):
        whole.add(pa.array(numbers[start : start + 500], pa.int64()))
        assert whole._rows <= 1_000
    for rank, found in zip(RANKS, whole.quantiles(RANKS), strict=True):
        assert 0 <= exact(numbers, rank) - found < 1_000_003 / 500 * 2
