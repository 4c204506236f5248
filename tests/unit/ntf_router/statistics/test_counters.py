"""Own SMP routers are told apart by their first host."""

from __future__ import annotations

from datetime import date

import pytest

from tocsin.ntf_router.statistics.counters import NtfCounters, OwnServerCounters

DAY_ZERO = date(1970, 1, 1)


@pytest.mark.parametrize(
    ("hosts", "own"),
    [
        (("own.test",), "own.test"),
        (("smp1.own.test", "x.onion"), "smp1.own.test"),
        (("smp.other.test",), "smp.other.test"),
        (("other.test",), None),
        (("notown.test",), None),
        (("x.onion", "smp1.own.test"), None),
    ],
)
def test_a_router_is_our_own_if_its_first_host_is_in_our_domains(
    hosts: tuple[str, ...], own: str | None
) -> None:
    assert OwnServerCounters(("own.test", "smp.other.test")).host_of(hosts) == own


def test_a_push_counts_once_for_each_own_router_in_it() -> None:
    counters = OwnServerCounters(("own.test",))
    counters.count_push(counters.delivered, [("a.own.test",), ("a.own.test",), ("b.own.test",), ("c.test",)])
    assert counters.delivered == {"a.own.test": 1, "b.own.test": 1}
    assert counters.failed == {}


def test_a_token_with_many_notifications_is_one_active_token() -> None:
    active = NtfCounters().active
    for queue in (b"q1", b"q2", b"q2"):
        active.notified(b"token", queue, 0.0)
    assert len(active.tokens.of(DAY_ZERO).day) == 1
    assert len(active.subscriptions.of(DAY_ZERO).day) == 2
