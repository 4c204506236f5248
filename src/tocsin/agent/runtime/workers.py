"""Workers: they do their job in rounds, rest until somebody kicks them, and continue after every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tocsin.agent.runtime.events import AgentTrouble, EventQueue
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.clients import Backoff
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation


@dataclass(frozen=True, slots=True)
class More:
    """There may be more to do now."""

    progress: bool = True
    """Whether the round achieved anything. If not, the retry delays keep growing."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Something failed that may succeed after a delay."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is nothing to do before the next kick, or before `until`."""

    until: float | None = None


Round: TypeAlias = More | Retry | Idle


class Job(Protocol):
    """The store is its memory: code that writes an action there kicks the worker of this job."""

    name: str

    async def do_round(self) -> Round:
        """Do what is due now, and return when to ask again."""

    def kicked(self) -> None:
        """Look again at everything that was set aside."""


class PlainJob:
    """A job that is one function and sets nothing aside."""

    def __init__(self, name: str, do_round: Callable[[], Coroutine[Any, Any, Round]]) -> None:
        self.name = name
        self.do_round = do_round

    def kicked(self) -> None:
        """Nothing to look at again."""


class Worker:
    """Runs one job."""

    def __init__(
        self,
        job: Job,
        clock: WaitingClock,
        retries: Backoff,
        events: EventQueue,
        quieter: asyncio.Event,
    ) -> None:
        self._job = job
        self._clock = clock
        self._retries = retries
        self._events = events
        self._quieter = quieter
        self._kicked = asyncio.Event()
        self.resting = False
        """Whether it has done everything and waits for a kick or a time."""

    def kick(self) -> None:
        self.resting = False
        self._job.kicked()
        self._kicked.set()

    async def run(self) -> None:
        delays = self._retries.delays()
        while True:
            self._kicked.clear()
            try:
                result = await self._job.do_round()
            except TocsinError as error:
                self._events.tell(AgentTrouble(self._job.name, error))
                result = Retry()
            match result:
                case More(progress):
                    delays = self._retries.delays() if progress else delays
                case Retry():
                    await self._clock.wait(self._retries.spread(next(delays), chance()))
                case Idle(until):
                    delays = self._retries.delays()
                    await self._rest(until)

    async def _rest(self, until: float | None) -> None:
        alarm: asyncio.Task[None] | None = None
        try:
            if until is not None:
                alarm = asyncio.create_task(self._ring(until))
                await asyncio.sleep(0)  # the wait has begun when the worker counts as resting
            if not self._kicked.is_set():
                self.resting = True
                self._quieter.set()
                await self._kicked.wait()
        finally:
            self.resting = False
            if alarm is not None:
                alarm.cancel()
                await asyncio.wait([alarm])  # suppressing CancelledError instead might suppress our own

    async def _ring(self, until: float) -> None:
        await self._clock.wait(max(0.0, until - self._clock.exactly()))
        self._kicked.set()


class Workers:
    """At most one worker for each kind of job and each router, started by its first kick."""

    def __init__(
        self, tasks: BackgroundTasks, clock: WaitingClock, retries: Backoff, events: EventQueue
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._retries = retries
        self._events = events
        self._workers: dict[tuple[str, RouterLocation | None], Worker] = {}

    def kick(self, kind: str, router: RouterLocation | None, make_job: Callable[[], Job]) -> None:
        worker = self._workers.get((kind, router))
        if worker is None:
            worker = Worker(make_job(), self._clock, self._retries, self._events, self._tasks.quieter)
            self._workers[kind, router] = worker
            self._tasks.start(worker.run(), kind)
        worker.kick()

    @property
    def resting(self) -> bool:
        return all(worker.resting for worker in self._workers.values())
