"""Rates: a burst, then one turn for each interval."""

from __future__ import annotations

from tocsin.ntf_router.session.rates import Rate, RateLimit, RateTable

LIMIT = RateLimit(burst=3, interval=10.0)


def test_a_burst_is_followed_by_one_turn_for_each_interval() -> None:
    rate = Rate(LIMIT)
    assert [rate.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [rate.take(109.9), rate.take(110.0), rate.take(110.0)] == [False, True, False]
    assert rate.is_fresh(139.9) is False
    assert rate.is_fresh(140.0) is True


def test_reserved_turns_are_in_the_future() -> None:
    rate = Rate(LIMIT)
    assert [rate.reserve(100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 10.0, 20.0]


def test_a_table_forgets_parties_that_are_fresh_again() -> None:
    table = RateTable(LIMIT)
    table.reserve(b"a", 100.0)
    table.reserve(b"b", 109.0)
    assert len(table) == 2
    table.reserve(b"c", 115.0)
    assert len(table) == 2


def test_a_table_is_bounded() -> None:
    table = RateTable(LIMIT, most=10)
    for number in range(1000):
        table.reserve(b"%d" % number, 100.0)
        assert len(table) <= 10
    assert [table.reserve(b"999", 100.0) for _ in range(3)] == [0.0, 0.0, 10.0]
