"""When a failed push is tried again (N8): once more at once, then by what the error says, ever later."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.ntf_router.delivery.retry_schedule import JITTER, RetrySchedule
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.push.provider import RetryLater, RetryScope

SETTINGS = DeliverySettings(retry_initial=1.0, retry_maximum=60.0)


def close_to(seconds: float) -> object:
    """A part is added by chance, so that pushes do not come back together."""
    return pytest.approx(seconds * (1 + JITTER / 2), rel=JITTER / 2)


async def test_the_second_try_comes_at_once_and_the_next_ones_ever_later() -> None:
    """N8: as the reference once more without a pause, and after that up to a maximum."""
    schedule = RetrySchedule(SETTINGS)
    outcome = RetryLater("503", RetryScope.TOKEN)
    delays = [schedule.delay(attempt, outcome) for attempt in range(1, 50)]
    assert schedule.delay(0, outcome) == 0.0
    assert delays[:7] == [close_to(seconds) for seconds in (1, 2, 4, 8, 16, 32, 60)]
    assert delays[7:] == [close_to(60)] * 42


async def test_a_provider_that_names_a_time_is_obeyed_within_the_maximum() -> None:
    """N8: also before the second try."""
    schedule = RetrySchedule(SETTINGS)
    for attempt in (0, 1, 9):
        assert schedule.delay(attempt, RetryLater("429", RetryScope.TOKEN, 7.0)) == close_to(7)
        assert schedule.delay(attempt, RetryLater("429", RetryScope.TOKEN, 1e9)) == close_to(60)


async def test_a_failure_of_one_token_pauses_nobody_else_and_one_of_the_provider_everybody() -> None:
    """N8: back-off is specific to the error."""
    schedule, now = RetrySchedule(SETTINGS), asyncio.get_running_loop().time()
    schedule.delay(3, RetryLater("TooManyRequests", RetryScope.TOKEN))
    assert schedule.paused_until == 0.0
    schedule.delay(1, RetryLater("connection", RetryScope.PROVIDER))
    assert 1.0 <= schedule.paused_until - now < 1.5
    schedule.delay(20, RetryLater("connection", RetryScope.PROVIDER))
    assert 8.0 <= schedule.paused_until - now < 8.5, "new pushes are not paused for long"


async def test_a_provider_that_names_a_time_for_all_gets_no_push_until_then() -> None:
    """A rate limit of a whole project, for example: pushes to other tokens would meet it too."""
    for seconds, obeyed in ((30.0, 30), (1e9, 60)):
        schedule, now = RetrySchedule(SETTINGS), asyncio.get_running_loop().time()
        delay = schedule.delay(0, RetryLater("QUOTA_EXCEEDED", RetryScope.PROVIDER, seconds))
        assert delay == close_to(obeyed)
        assert schedule.paused_until - now >= delay


async def test_pushes_come_back_in_their_time() -> None:
    schedule, now, seen = RetrySchedule(SETTINGS), asyncio.get_running_loop().time(), []
    assert schedule.next_at is None
    for delay, name in ((3.0, "c"), (1.0, "a"), (1.0, "b")):
        schedule.add(delay, lambda name=name: seen.append(name))  # type: ignore[misc]
    schedule.run_due(now)
    assert (seen, len(schedule)) == ([], 3)
    schedule.run_due(now + 2.0)
    assert (seen, len(schedule)) == (["a", "b"], 1)
    schedule.run_due(now + 4.0)
    assert (seen, schedule.next_at) == (["a", "b", "c"], None)
