"""Sets of devices are exact while they are small, and unite in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.pipeline.transforms.device_sets import KEPT, joined_sets, sets_of

PAIRS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-9, 9)), max_size=40)


@given(pairs=PAIRS, cut=st.integers(0, 40))
def test_small_sets_are_sets(pairs: list[tuple[int, int]], cut: int) -> None:
    plain = [len({device for number, device in pairs if number == each}) for each in range(4)]
    numbers, devices = np.array(pairs, np.int64).reshape(-1, 2).T
    assert sets_of(numbers, devices).sizes(4) == plain
    parts = [(sets_of(numbers[part], devices[part]), np.arange(4)) for part in (slice(cut), slice(cut, None))]
    assert joined_sets(parts).sizes(4) == plain
    whole = sets_of(numbers, devices).united(np.array([0, 0, 1, -1]))
    assert whole.sizes(2) == [len({device for number, device in pairs if number in (0, 1)}), plain[2]]


@given(pairs=PAIRS, enough=st.integers(1, 5))
def test_limited_sets_still_tell_whether_there_are_enough(pairs: list[tuple[int, int]], enough: int) -> None:
    numbers, devices = np.array(pairs, np.int64).reshape(-1, 2).T
    limited = sets_of(numbers, devices).limited(enough)
    plain = [len({device for number, device in pairs if number == each}) for each in range(4)]
    assert [size >= enough for size in limited.sizes(4)] == [size >= enough for size in plain]


@pytest.mark.parametrize("count", [KEPT - 1, 3 * KEPT, 500_000])
def test_large_sets_are_estimated(count: int) -> None:
    devices = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, count)
    parts = [
        (sets_of(np.zeros(len(each), np.int64), each), np.array([0])) for each in np.array_split(devices, 7)
    ]
    [size] = joined_sets(parts).sizes(1)
    assert size == count if count < KEPT else size == pytest.approx(count, rel=0.06)
