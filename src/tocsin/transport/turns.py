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


class CpuClock:
    """A clock of the CPU time that a thread uses. It seldom asks the system.

    The system takes a lock for each answer: ten to forty times as long as for the time of day. In between the time of
    day counts, which never passes more slowly than CPU time. When the system is asked, what was not CPU time is taken
    off again.
    """

    def __init__(
        self, cpu: Callable[[], float] = time.thread_time, wall: Callable[[], float] = time.perf_counter
    ) -> None:
        self._cpu, self._wall = cpu, wall
        self._cpu_then, self._wall_then = cpu(), wall()
        self._unused = 0.0
        """Seconds in which the thread did not use the CPU."""

    def at_most(self) -> float:
        """Return the CPU time if the CPU was used all the time since the system was asked."""
        return self._wall() - self._unused

    def recent(self) -> float:
        """Return the CPU time, with at most a slice of other time."""
        now = self._wall()
        return self.exact() if now - self._wall_then > SLICE_SECONDS else now - self._unused

    def exact(self) -> float:
        """Return the CPU time as the system tells it."""
        cpu, wall = self._cpu(), self._wall()
        self._unused += max(0.0, wall - self._wall_then - (cpu - self._cpu_then))
        self._cpu_then, self._wall_then = cpu, wall
        return wall - self._unused


class Turns:
    """The line in front of one event loop. It is bounded by the number of tasks, which connections limit."""

    def __init__(self, clock: CpuClock | None = None) -> None:
        """`clock` shows the CPU time of the loop's thread."""
        self.clock = clock or CpuClock()
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
        self._iterations, self._idle, self._seen_at = iterations, 0, self.clock.at_most()
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        """Let the first task in line go on after some iterations of the loop, then the next one."""
        now = self.clock.at_most()
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

    __slots__ = ("_clock", "_turns", "_until", "_waited", "pauses")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._clock = turns.clock
        self._until = 0.0
        self._waited = False
        self.pauses = 0
        """How often the task has waited. Others may have changed anything since the number was lower."""
        self.begin()

    def begin(self) -> None:
        """Begin a slice: the task has just waited for something else, such as the next block."""
        self._waited = False
        self._until = self._clock.recent() + SLICE_SECONDS

    def is_over(self) -> bool:
        """Whether the slice is used up, so that the task must `give_way`."""
        until = self._until
        if not self._waited and self._turns:
            until += SHORT_SLICE_SECONDS - SLICE_SECONDS
        return self._clock.at_most() >= until and self._clock.exact() >= until

    async def give_way(self) -> None:
        """Wait in line, then begin a full slice."""
        self.pauses += 1
        await self._turns.wait()
        self._waited = True
        self._until = self._clock.recent() + SLICE_SECONDS


class Pace:
    """Slices of a pass over many things that a program makes by itself: after each one, all other tasks run."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: CpuClock | None = None) -> None:
        self._clock = clock or CpuClock()
        self._until = self._clock.recent() + SLICE_SECONDS

    def is_over(self) -> bool:
        """Whether the slice is used up, so that the pass must `pause`."""
        return self._clock.at_most() >= self._until and self._clock.exact() >= self._until

    async def pause(self) -> None:
        """Let all others run, then begin the next slice. They may have changed anything."""
        await asyncio.sleep(0)
        self._until = self._clock.recent() + SLICE_SECONDS


async def in_slices(items: Iterable[T], pace: Pace | None = None) -> AsyncIterator[T]:
    """Yield the items of a pass, with pauses. They must not be a view of a collection that others change."""
    pace = pace or Pace()
    for item in items:
        yield item
        if pace.is_over():
            await pace.pause()
