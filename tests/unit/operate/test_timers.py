"""Actions by the clock: one that fails comes again, and does not fill the log."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.errors import StoreUnavailable
from tocsin.operate.timers import Timers


class Action:
    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.done = asyncio.Event()
        self.turns = 0

    async def run(self) -> None:
        self.turns += 1
        if self._errors:
            raise self._errors.pop(0)
        self.done.set()


async def test_an_action_that_failed_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    action = Action(*[StoreUnavailable("the disk is full")] * 50)
    async with asyncio.timeout(10), Timers("a router") as timers:
        timers.every(0.0, action.run)
        await action.done.wait()
    assert action.turns >= 51
    [line] = caplog.records
    assert "a timed task of the a router failed" in line.getMessage()
    assert "the disk is full" in line.getMessage()
    assert not line.exc_info, "what is expected needs no trace"


async def test_an_unexpected_error_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    action = Action(KeyError("a bug"))
    async with asyncio.timeout(10), Timers("a router") as timers:
        timers.every(0.0, action.run)
        await action.done.wait()
    [line] = caplog.records
    assert line.exc_info
