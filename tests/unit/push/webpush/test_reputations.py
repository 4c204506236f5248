"""What is remembered of push services."""

from __future__ import annotations

from tocsin.push.webpush.host_lane import LONGEST_PAUSE_SECONDS, Reputations

HERE = "https://push.test"


def test_a_service_is_proven_once_it_has_accepted_a_push() -> None:
    known = Reputations()
    known.reached(HERE, accepted=False)
    assert not known.is_proven(HERE)
    known.reached(HERE, accepted=True)
    assert known.is_proven(HERE)
    known.unreachable(HERE, 0.0)
    assert not known.is_proven(HERE)


def test_pauses_of_a_service_that_cannot_be_reached_grow_up_to_a_limit() -> None:
    known = Reputations()
    assert known.pause(HERE, 0.0) is None
    assert [known.unreachable(HERE, now) for now in (0.0, 2.0, 6.0)] == [2.0, 4.0, 8.0]
    assert known.pause(HERE, 7.0) == 7.0
    assert known.pause(HERE, 14.0) is None
    for number in range(1, 100):
        known.unreachable(HERE, number * 1000.0)
    assert known.pause(HERE, 99_000.0) == LONGEST_PAUSE_SECONDS


def test_attempts_that_fail_together_are_one_failure() -> None:
    known = Reputations()
    assert [known.unreachable(HERE, now) for now in (0.0, 0.0, 0.5, 2.0)] == [2.0, 2.0, 1.5, 4.0]


def test_an_answer_ends_the_pause() -> None:
    known = Reputations()
    known.unreachable(HERE, 0.0)
    known.reached(HERE, accepted=False)
    assert known.pause(HERE, 0.0) is None
    assert known.unreachable(HERE, 0.0) == 2.0


def test_only_so_many_services_are_remembered() -> None:
    known = Reputations(limit=2)
    for now, name in enumerate("abac"):
        known.reached(name, accepted=True)
        known.unreachable(f"{name}!", now * 10.0)
    assert [known.is_proven(name) for name in "abc"] == [True, False, True]
    assert [known.pause(f"{name}!", 20.0) is not None for name in "abc"] == [True, False, True]
