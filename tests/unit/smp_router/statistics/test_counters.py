"""Counters of an SMP router."""

from __future__ import annotations

from tocsin.operate.metrics import totals
from tocsin.smp_router.statistics.counters import SmpCounters


def test_every_counter_begins_at_zero_and_is_explained_in_one_sentence() -> None:
    counted = list(totals(SmpCounters()))
    assert len(counted) > 40
    for each in counted:
        assert each.value == 0
        assert each.about.endswith(".")
        assert "\n" not in each.about


def test_an_unknown_counter_cannot_be_counted() -> None:
    assert not hasattr(SmpCounters(), "__dict__")
