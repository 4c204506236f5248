"""Slices of CPU time on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.transport import turns as turns_module
from tocsin.transport.turns import (
    IDLE_ITERATIONS,
    IDLE_SECONDS,
    ITERATIONS_BETWEEN,
    SHORT_SLICE_SECONDS,
    SLICE_SECONDS,
    Turns,
    cpu_clock,
    in_slices,
)


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


class Iterations:
    """Counts iterations of the event loop, and moves the clock in each."""

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        self.count = 0
        self._clock = clock
        self._seconds = seconds
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        self._clock.time += self._seconds
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def test_a_slice_ends_after_its_time_and_begins_again_after_a_wait() -> None:
    clock = Clock()
    turn = Turns(clock).turn()
    assert not turn.is_over()
    clock.time += SLICE_SECONDS
    assert turn.is_over()
    await turn.give_way()
    assert not turn.is_over()
    assert turn.pauses == 1
    clock.time += SLICE_SECONDS
    turn.begin()
    assert not turn.is_over()
    assert turn.pauses == 1


async def test_while_others_wait_in_line_the_first_slice_is_short() -> None:
    clock = Clock()
    turns = Turns(clock)
    first, second = turns.turn(), turns.turn()
    waiting = asyncio.create_task(first.give_way())
    await asyncio.sleep(0)
    assert len(turns) == 1
    assert not second.is_over()
    clock.time += SHORT_SLICE_SECONDS
    assert second.is_over()
    await waiting
    assert not second.is_over()  # nobody waits now


async def test_one_task_goes_on_at_a_time_and_others_run_in_between() -> None:
    gaps = await _gaps_between_slices(work_of_others=2 * IDLE_SECONDS)
    assert min(gaps) >= ITERATIONS_BETWEEN - 1


async def test_slices_follow_each_other_soon_if_nobody_else_has_work() -> None:
    gaps = await _gaps_between_slices(work_of_others=0.0)
    assert min(gaps) >= IDLE_ITERATIONS
    assert max(gaps) < ITERATIONS_BETWEEN - 1


async def _gaps_between_slices(work_of_others: float) -> list[int]:
    """Iterations of the event loop from each slice to the next, if others work for so long in each iteration."""
    clock = Clock()
    turns, iterations, went_on = Turns(clock), Iterations(clock, work_of_others), list[int]()

    async def work() -> None:
        for _ in range(3):
            await turns.turn().give_way()
            went_on.append(iterations.count)
            clock.time += SLICE_SECONDS

    await asyncio.gather(*(work() for _ in range(10)))
    iterations.stop()
    assert turns.waited == 30
    return [after - before for before, after in pairwise(went_on)]


async def test_the_line_is_first_come_first_served_and_survives_a_cancelled_task() -> None:
    turns, order = Turns(), []

    async def work(name: str) -> None:
        await turns.wait()
        order.append(name)

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c"]
    assert len(turns) == 0
    await asyncio.wait_for(turns.wait(), 5)


async def test_a_pass_over_many_items_lets_others_run_after_each_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(turns_module, "_clock", clock)
    iterations, seen = Iterations(clock), []
    async for item in in_slices(range(100)):
        seen.append((item, iterations.count))
        clock.time += SLICE_SECONDS / 10
    iterations.stop()
    assert [item for item, _ in seen] == list(range(100))
    assert seen[-1][1] >= 9


@given(steps=st.lists(st.tuples(st.floats(0, 0.002), st.floats(0, 0.01)), min_size=1, max_size=30))
def test_the_clock_of_cpu_time_is_neither_slow_nor_goes_back(steps: list[tuple[float, float]]) -> None:
    """Each step uses CPU, then waits. The clock counts a wait as CPU for a short slice at most."""
    cpu, wall = Clock(), Clock()
    now = cpu_clock(cpu, wall)
    before, began = now(), 0.0
    for used, waited in steps:
        cpu.time += used
        wall.time += used + waited
        shown = now()
        assert shown >= before
        assert shown - began >= cpu.time - 1e-9
        before = shown
    assert before <= cpu.time + len(steps) * SHORT_SLICE_SECONDS + 1e-9


def test_the_system_is_asked_once_in_a_short_slice() -> None:
    wall, asked = Clock(), 0

    def cpu() -> float:
        nonlocal asked
        asked += 1
        return wall.time

    now = cpu_clock(cpu, wall)
    for _ in range(100):
        wall.time += SHORT_SLICE_SECONDS / 10
        assert now() == pytest.approx(wall.time)
    assert asked <= 1 + 10
