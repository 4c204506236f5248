"""Names of notifications are remembered for a while, and not for ever."""

from __future__ import annotations

from tocsin.ntf_router.subscriber.notifications import MOST_RECENT, RECENT_SECONDS, RecentNotifications


def test_a_name_is_remembered_for_the_stated_time_at_least() -> None:
    recent = RecentNotifications()
    recent.add([b"old"], 1000.0)
    recent.add([b"new"], 1000.0 + RECENT_SECONDS)
    assert b"old" in recent
    assert b"new" in recent
    assert b"other" not in recent


def test_names_are_forgotten_after_two_generations() -> None:
    recent = RecentNotifications()
    for number in range(4):
        recent.add([b"%d" % number], 1000.0 + number * (RECENT_SECONDS + 1))
    assert [b"%d" % number in recent for number in range(4)] == [False, False, True, True]


def test_the_number_of_names_is_bounded() -> None:
    recent = RecentNotifications()
    for start in range(0, 5 * MOST_RECENT, 1000):
        recent.add([b"%d" % number for number in range(start, start + 1000)], 1000.0)
        assert len(recent) <= 2 * MOST_RECENT
    assert b"%d" % (5 * MOST_RECENT - 1) in recent
