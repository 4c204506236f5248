"""Active queues of a day, a week and a month."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from tocsin.operate import active_queues
from tocsin.operate.active_queues import ActiveQueues, PeriodHashes, UsedQueues, id_number


def seconds(day: str) -> int:
    return int(datetime.fromisoformat(f"{day}T12:00:00Z").timestamp())


def test_a_queue_counts_once_however_often_it_is_used() -> None:
    active = ActiveQueues()
    for notify in (False, True, False):
        active.used(b"queue", seconds("2026-11-11"), notify=notify)
    active.used(b"other", seconds("2026-11-11"), notify=False)
    assert active.messages.of(date(2026, 11, 11)).counts == (2, 2, 2)
    assert active.notifications.of(date(2026, 11, 11)).counts == (1, 1, 1)


def test_days_weeks_and_months_end_by_themselves() -> None:
    used = UsedQueues()
    used.used(1, date(2026, 11, 1).toordinal())  # a Sunday
    used.used(2, date(2026, 11, 2).toordinal())
    used.used(3, date(2026, 11, 3).toordinal())
    assert used.of(date(2026, 11, 3)) == PeriodHashes({3}, {2, 3}, {1, 2, 3})
    used.used(4, date(2026, 11, 30).toordinal())  # a Monday
    assert used.of(date(2026, 11, 30)) == PeriodHashes({4}, {4}, {1, 2, 3, 4})
    used.used(5, date(2026, 12, 1).toordinal())
    assert used.of(date(2026, 12, 1)) == PeriodHashes({5}, {4, 5}, {5})
    assert used._last_used.keys() == {4, 5}  # what counts nowhere any more is forgotten


@pytest.mark.parametrize(
    ("then", "now", "counts"),
    [
        (date(2026, 11, 4), date(2026, 11, 4), (1, 2, 3)),
        (date(2026, 11, 4), date(2026, 11, 5), (0, 2, 3)),
        (date(2026, 11, 4), date(2026, 11, 9), (0, 0, 3)),
        (date(2026, 11, 4), date(2026, 12, 1), (0, 0, 0)),
    ],
)
def test_what_was_saved_counts_until_its_day_week_and_month_end(
    then: date, now: date, counts: tuple[int, int, int]
) -> None:
    used = UsedQueues()
    used.restore(PeriodHashes({1}, {1, 2}, {1, 2, 3}), then)
    assert used.of(then) == PeriodHashes({1}, {1, 2}, {1, 2, 3})
    assert used.of(now).counts == counts


def test_a_week_that_began_in_the_month_before_is_restored() -> None:
    used = UsedQueues()
    saved = PeriodHashes({1}, {1, 2}, {1})  # 2: on Monday, 30 November
    used.restore(saved, date(2026, 12, 1))
    assert used.of(date(2026, 12, 1)) == saved


@pytest.mark.parametrize(
    ("entity_id", "number"),
    [(b"", 5558979605539197941), (b"abc", -9115746252107565630), (b"\1" * 24, -426141653462452011)],
)
def test_numbers_of_ids_are_the_references(entity_id: bytes, number: int) -> None:
    """Computed from the description of FNV-1 and of the package hashable 1.4.3, not by the reference."""
    assert id_number(entity_id) == number


def test_a_bounded_number_of_queues_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_queues, "MAX_COUNTED", 3)
    used, today = UsedQueues(), date(2026, 11, 16)
    for number in (*range(10), 0):
        used.used(number, today.toordinal())
    assert used.of(today).counts == (3, 3, 3)
