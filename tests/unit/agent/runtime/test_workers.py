"""Workers: rounds, rests and retries of one job."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tocsin.agent.runtime.events import AgentTrouble, EventQueue
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.runtime.workers import Idle, More, Retry, Round, Workers
from tocsin.clients import Backoff
from tocsin.errors import StoreError

RETRIES = Backoff(initial=1.0, increase_after=1.0, maximum=4.0, factor=2.0, jitter=0.0)


class HeldClock:
    """Waits end when the test says so."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.waited = asyncio.Event()
        self.ended = asyncio.Event()

    def exactly(self) -> float:
        return 100.0

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.waited.set()
        await self.ended.wait()


class Script:
    """A job whose rounds end as written."""

    name = "script"

    def __init__(self, *rounds: Round | StoreError) -> None:
        self.rounds = deque(rounds)
        self.kicks = 0
        self.began = asyncio.Event()

    async def do_round(self) -> Round:
        self.began.set()
        result = self.rounds.popleft() if self.rounds else Idle()
        if isinstance(result, StoreError):
            raise result
        return result

    def kicked(self) -> None:
        self.kicks += 1


class Scene:
    def __init__(self) -> None:
        self.events = EventQueue()
        self.tasks = BackgroundTasks(self.events)
        self.clock = HeldClock()
        self.workers = Workers(self.tasks, self.clock, RETRIES, self.events)

    def kick(self, job: Script) -> None:
        self.workers.kick(job.name, None, lambda: job)

    async def until_at_rest(self) -> None:
        while not self.workers.resting:  # noqa: ASYNC110 - one turn of the loop, not a time
            await asyncio.sleep(0)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    try:
        async with asyncio.timeout(5):
            yield made
    finally:
        await made.tasks.close()


async def test_job_goes_on_in_rounds_until_it_is_idle_and_again_after_a_kick() -> None:
    async with scene() as here:
        job = Script(More(), More())
        here.kick(job)
        assert not here.workers.resting
        await here.until_at_rest()
        assert not job.rounds
        job.rounds.append(More())
        here.kick(job)
        assert not here.workers.resting
        await here.until_at_rest()
        assert (len(job.rounds), job.kicks) == (0, 2)
        assert here.clock.waits == []


async def test_idle_job_wakes_at_its_time() -> None:
    async with scene() as here:
        job = Script(Idle(until=107.0))
        here.kick(job)
        await here.until_at_rest()
        await here.clock.waited.wait()
        assert here.clock.waits == [7.0]
        job.began.clear()
        here.clock.ended.set()
        await job.began.wait()


async def test_retries_wait_longer_each_time_until_there_is_progress() -> None:
    async with scene() as here:
        here.clock.ended.set()
        here.kick(Script(Retry(), Retry(), More(progress=False), Retry(), More(), Retry()))
        await here.until_at_rest()
        assert here.clock.waits == [1.0, 2.0, 4.0, 1.0]


async def test_error_is_told_and_the_job_tried_again() -> None:
    async with scene() as here:
        here.clock.ended.set()
        error = StoreError("the disk is full")
        here.kick(Script(error, More()))
        await here.until_at_rest()
        assert here.events.waiting() == [AgentTrouble("script", error)]


async def test_there_is_one_worker_for_each_kind_of_job_and_router() -> None:
    async with scene() as here:
        first, second = Script(), Script()
        here.kick(first)
        here.kick(second)
        await here.until_at_rest()
        assert (first.kicks, second.kicks) == (2, 0)
