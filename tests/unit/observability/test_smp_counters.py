"""Counters of an SMP router."""

from __future__ import annotations

from dataclasses import fields

from tocsin.observability.smp_counters import SmpCounters


def test_every_counter_begins_at_zero_and_is_explained_in_one_sentence() -> None:
    counters = SmpCounters()
    for each in fields(counters):
        assert getattr(counters, each.name) == 0
        about = each.metadata["about"]
        assert about.endswith(".")
        assert "\n" not in about


def test_an_unknown_counter_cannot_be_counted() -> None:
    assert not hasattr(SmpCounters(), "__dict__")
