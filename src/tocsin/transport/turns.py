"""Turns: no connection keeps the others waiting for longer than a slice of CPU time.

Theory of operation. A task that serves a connection has a `Turn`. It asks between two small steps (a signature, a
command) whether its slice is used up. If so, it waits in the line of all such tasks. The line lets one task go on,
then none for some iterations of the event loop, so that everybody else, whose steps are short, runs between two
slices, however many tasks wait. If nobody else has anything to do, the next task goes on sooner. While the line is
not empty, a task that has not waited yet gets a short slice, so that many connections which start at the same time do
not get a full slice each.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

SLICE_SECONDS: Final = 0.001
"""CPU time that one connection may use before the others get their turn. A single step may exceed it."""
SHORT_SLICE_SECONDS: Final = SLICE_SECONDS / 4
"""The first slice of a connection while others wait in line."""
ITERATIONS_BETWEEN: Final = 8
"""Iterations of the event loop from one slice to the next: a short command is read, executed and answered in them."""
IDLE_ITERATIONS: Final = 2
"""Iterations in a row without work of others after which the next slice begins at once."""
IDLE_SECONDS: Final = 0.00005
"""An iteration that is shorter did nothing: to read a block takes longer."""

T = TypeVar("T")


def cpu_clock(
    cpu: Callable[[], float] = time.thread_time, wall: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Return a clock of the CPU time that a thread uses, which asks the system at most once in a short slice.

    The system takes a lock for each answer, ten times as long as for the time of day. In between, the time of day
    counts: CPU time passes no faster. So this clock never goes slower than the CPU time, and never back.
    """
    shown_then, cpu_then, wall_then = 0.0, cpu(), wall()
    shown = shown_then

    def now() -> float:
        nonlocal shown, shown_then, cpu_then, wall_then
        wall_now = wall()
        passed = wall_now - wall_then
        if passed <= SHORT_SLICE_SECONDS:
            shown = shown_then + passed
            return shown
        cpu_now = cpu()
        shown = shown_then = max(shown, shown_then + cpu_now - cpu_then)
        cpu_then, wall_then = cpu_now, wall_now
        return shown

    return now


class Turns:
    """The line in front of one event loop. It is bounded by the number of tasks, which connections limit."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock` shows the CPU time of the loop's thread."""
        self.clock = clock or cpu_clock()
        self.waited = 0
        """How often a task has waited in line since the start."""
        self._line: deque[asyncio.Future[None]] = deque()
        self._releasing = False
        self._iterations = 0
        """Iterations that have passed since the last slice."""
        self._idle = 0
        """How many of the last ones were idle."""
        self._seen_at = 0.0

    def __len__(self) -> int:
        """The number of tasks in line."""
        return len(self._line)

    def turn(self) -> Turn:
        """Return the turn of one task."""
        return Turn(self)

    async def wait(self) -> None:
        """Wait in line until it is this task's turn."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._line.append(waiter)
        self.waited += 1
        if not self._releasing:
            self._releasing = True
            self._watch(1)
        await waiter

    def _watch(self, iterations: int) -> None:
        """Begin to count iterations."""
        self._iterations, self._idle, self._seen_at = iterations, 0, self.clock()
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        """Let the first task in line go on after some iterations of the loop, then the next one."""
        now = self.clock()
        self._idle = self._idle + 1 if now - self._seen_at < IDLE_SECONDS else 0
        self._iterations += 1
        if self._iterations < ITERATIONS_BETWEEN and self._idle < IDLE_ITERATIONS:
            self._seen_at = now
            asyncio.get_running_loop().call_soon(self._release)
            return
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():  # done: its task was cancelled
                waiter.set_result(None)
                break
        self._releasing = bool(self._line)
        if self._releasing:
            self._watch(0)


class Turn:
    """The CPU time that one task uses in a row."""

    __slots__ = ("_turns", "_until", "_waited", "pauses")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._until = 0.0
        self._waited = False
        self.pauses = 0
        """How often the task has waited. Others may have changed anything since the number was lower."""
        self.begin()

    def begin(self) -> None:
        """Begin a slice: the task has just waited for something else, such as the next block."""
        self._waited = False
        self._until = self._turns.clock() + SLICE_SECONDS

    def is_over(self) -> bool:
        """Whether the slice is used up, so that the task must `give_way`."""
        now = self._turns.clock()
        if now >= self._until:
            return True
        if self._waited or not self._turns:
            return False
        return now >= self._until - SLICE_SECONDS + SHORT_SLICE_SECONDS

    async def give_way(self) -> None:
        """Wait in line, then begin a full slice."""
        self.pauses += 1
        await self._turns.wait()
        self._waited = True
        self._until = self._turns.clock() + SLICE_SECONDS


class Pace:
    """Slices of a pass over many things that a program makes by itself: after each one, all other tasks run."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = _clock() + SLICE_SECONDS

    def is_over(self) -> bool:
        """Whether the slice is used up, so that the pass must `pause`."""
        return _clock() >= self._until

    async def pause(self) -> None:
        """Let all others run, then begin the next slice. They may have changed anything."""
        await asyncio.sleep(0)
        self._until = _clock() + SLICE_SECONDS


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items of a pass, with pauses. They must not be a view of a collection that others change."""
    pace = Pace()
    for item in items:
        yield item
        if pace.is_over():
            await pace.pause()


def _clock() -> float:
    return time.thread_time()
