"""Samples of durations hold all values of small sets, and the ranks of large ones."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.pipeline.transforms.weighted_samples import KEPT, joined_samples, samples_of


@pytest.mark.parametrize("greatest", [1_000, 1 << 50])
def test_small_sets_keep_their_values(greatest: int) -> None:
    chance = np.random.default_rng(1)
    numbers, values = chance.integers(0, 5, 300), chance.integers(0, greatest, 300)
    parts = [(samples_of(numbers[part::3], values[part::3]), np.array([0, 1, 2, 3, -1])) for part in range(3)]
    found = {number: (each.tolist(), weights.sum()) for number, each, weights in joined_samples(parts).each()}
    assert found == {
        number: (sorted(values[numbers == number].tolist()), (numbers == number).sum()) for number in range(4)
    }


def test_large_sets_keep_their_ranks_over_several_merges() -> None:
    values = np.random.default_rng(2).permutation(200_000)
    parts = [
        (samples_of(np.zeros(len(each), np.int64), each), np.array([0])) for each in np.array_split(values, 9)
    ]
    [(_, found, weights)] = joined_samples([(joined_samples(parts), np.array([0]))]).each()
    assert weights.sum() == len(values)
    assert len(found) <= 2 * KEPT
    assert np.abs(found - (np.cumsum(weights) - weights / 2)).max() < 0.01 * len(values)
