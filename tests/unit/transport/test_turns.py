"""Slices of CPU time on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.transport.turns import (
    IDLE_ITERATIONS,
    IDLE_SECONDS,
    ITERATIONS_BETWEEN,
    SHORT_SLICE_SECONDS,
    SLICE_SECONDS,
    CpuClock,
    Pace,
    Turns,
    in_slices,
)


class Clock:
    time = 0.0
    asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.time


def always_busy(clock: Clock) -> CpuClock:
    """Return the clock of a thread that uses the CPU all the time."""
    return CpuClock(clock, clock)


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
    turn = Turns(always_busy(clock)).turn()
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
    turns = Turns(always_busy(clock))
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
    turns, iterations, went_on = Turns(always_busy(clock)), Iterations(clock, work_of_others), list[int]()

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


async def test_a_pass_over_many_items_lets_others_run_after_each_slice() -> None:
    clock = Clock()
    iterations, seen = Iterations(clock), []
    async for item in in_slices(range(100), Pace(always_busy(clock))):
        seen.append((item, iterations.count))
        clock.time += SLICE_SECONDS / 10
    iterations.stop()
    assert [item for item, _ in seen] == list(range(100))
    assert seen[-1][1] >= 9


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 0.002), st.floats(0, 0.01), st.sampled_from(["at_most", "recent", "exact"])),
        min_size=1,
        max_size=30,
    )
)
def test_the_clock_of_cpu_time_is_never_slow(steps: list[tuple[float, float, str]]) -> None:
    """Each step uses CPU, then waits."""
    cpu, wall = Clock(), Clock()
    clock = CpuClock(cpu, wall)
    for used, waited, look in steps:
        cpu.time += used
        wall.time += used + waited
        now: float = getattr(clock, look)()
        assert now >= cpu.time - 1e-9
        if look == "recent":
            assert now <= cpu.time + SLICE_SECONDS + 1e-9
        elif look == "exact":
            assert now == pytest.approx(cpu.time)


@given(idle=st.floats(0, 0.1), waits=st.lists(st.floats(0, 0.01), max_size=20))
def test_waiting_for_the_cpu_does_not_use_up_a_slice(idle: float, waits: list[float]) -> None:
    """Other programs may have the CPU while a task has its slice: it still gets all of its time, and little more."""
    cpu, wall = Clock(), Clock()
    turn = Turns(CpuClock(cpu, wall)).turn()
    wall.time += idle
    turn.begin()
    began, step = cpu.time, SLICE_SECONDS / 20
    for wait in [*waits, *([0.0] * 60)]:
        if turn.is_over():
            break
        wall.time += wait + step
        cpu.time += step
    assert SLICE_SECONDS - 2 * step <= cpu.time - began <= 2 * SLICE_SECONDS + 2 * step


def test_slices_that_end_early_do_not_ask_the_system() -> None:
    cpu, wall = Clock(), Clock()
    turn = Turns(CpuClock(cpu, wall)).turn()
    before = cpu.asked
    for _ in range(100):
        turn.begin()
        for _ in range(10):
            cpu.time += SLICE_SECONDS / 200
            wall.time += SLICE_SECONDS / 200
            assert not turn.is_over()
    assert cpu.asked - before <= 5
