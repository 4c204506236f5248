"""Delays between attempts (smp-tests.md 18)."""

from __future__ import annotations

from itertools import islice

import pytest

from tocsin.clients import Backoff


def test_delays_grow_after_a_while_up_to_the_maximum() -> None:
    delays = Backoff(initial=10, increase_after=20, maximum=40).delays()
    assert list(islice(delays, 8)) == pytest.approx([10, 10, 15, 22.5, 33.75, 40, 40, 40])


def test_jitter_spreads_a_delay_to_both_sides() -> None:
    backoff = Backoff(jitter=0.2)
    assert [backoff.spread(10, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([8, 10, 12])


@pytest.mark.parametrize("wrong", [{"initial": 0.0}, {"initial": 99.0}, {"factor": 0.5}, {"jitter": 1.0}])
def test_delays_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="never grow"):
        Backoff(**wrong)
