"""Keyed hashes whose keys change and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.events.pseudonyms import PERIOD_SECONDS, PseudonymKeys

DAY = 20_000
NOTIFIER, NONCE, TOKEN = b"n" * 24, b"m" * 24, b"t" * 24


class Clock:
    def __init__(self, day: float = DAY) -> None:
        self.time = day * PERIOD_SECONDS

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keys(folder: Path, clock: Clock, retention: int = 2) -> PseudonymKeys:
    return PseudonymKeys(folder / "keys", retention, clock)


def test_pseudonyms_are_the_same_after_a_restart_and_in_another_router(tmp_path: Path, clock: Clock) -> None:
    first, second = keys(tmp_path, clock).current(), keys(tmp_path, clock).current()
    assert first.name == second.name
    assert first.notification(NOTIFIER, NONCE) == second.notification(NOTIFIER, NONCE)
    assert first.queue(NOTIFIER) == second.queue(NOTIFIER)
    assert first.token(TOKEN) == second.token(TOKEN)


def test_kinds_of_ids_cannot_be_compared(tmp_path: Path, clock: Clock) -> None:
    period = keys(tmp_path, clock).current()
    assert period.queue(TOKEN) != period.token(TOKEN)
    assert len({period.queue(TOKEN), period.token(TOKEN), period.notification(TOKEN, b"")}) == 3


def test_nobody_can_join_across_periods(tmp_path: Path, clock: Clock) -> None:
    using = keys(tmp_path, clock)
    today = using.current()
    clock.time = today.ends_at
    tomorrow = using.current()
    assert today.name != tomorrow.name
    for kind in ("queue", "token"):
        assert getattr(today, kind)(TOKEN) != getattr(tomorrow, kind)(TOKEN)
    assert today.notification(NOTIFIER, NONCE) != tomorrow.notification(NOTIFIER, NONCE)


def test_a_period_lasts_until_its_last_moment(tmp_path: Path, clock: Clock) -> None:
    using = keys(tmp_path, clock)
    today = using.current()
    clock.time = today.ends_at - 0.001
    assert using.current() is today


def test_keys_are_erased_after_the_retention(tmp_path: Path, clock: Clock) -> None:
    using = keys(tmp_path, clock, retention=2)
    using.current()
    for day in (1, 2):
        clock.time = (DAY + day) * PERIOD_SECONDS
        using.current()
        assert using.of_day(DAY) is not None
    clock.time = (DAY + 3) * PERIOD_SECONDS
    using.current()
    assert using.of_day(DAY) is None
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == [
        f"{DAY + day}.key" for day in (1, 2, 3)
    ]


def test_a_router_that_was_off_for_long_erases_at_its_start(tmp_path: Path, clock: Clock) -> None:
    keys(tmp_path, clock).current()
    clock.time += 100 * PERIOD_SECONDS
    later = keys(tmp_path, clock)
    later.current()
    assert later.of_day(DAY) is None


def test_an_operator_can_derive_a_pseudonym_while_its_key_exists(tmp_path: Path, clock: Clock) -> None:
    using = keys(tmp_path, clock)
    then = using.current().queue(NOTIFIER)
    clock.time += PERIOD_SECONDS
    using.current()
    period = using.of_day(DAY)
    assert period is not None
    assert period.queue(NOTIFIER) == then


def test_keys_are_for_their_owner_only_and_nothing_else_is_left(tmp_path: Path, clock: Clock) -> None:
    keys(tmp_path, clock).current()
    folder = tmp_path / "keys"
    assert folder.stat().st_mode & 0o777 == 0o700
    [path] = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32


def test_what_does_not_look_like_a_key_stays(tmp_path: Path, clock: Clock) -> None:
    using = keys(tmp_path, clock)
    (tmp_path / "keys" / "notes.key").write_text("mine")
    using.current()
    assert (tmp_path / "keys" / "notes.key").exists()


def test_a_clock_that_jumps_ahead_and_back_uses_the_key_of_the_day_again(
    tmp_path: Path, clock: Clock
) -> None:
    jumping, steady = keys(tmp_path, clock), keys(tmp_path, clock)
    today = steady.current().name
    clock.time += PERIOD_SECONDS
    assert jumping.current().name != today
    clock.time -= PERIOD_SECONDS
    assert jumping.current().name == today
