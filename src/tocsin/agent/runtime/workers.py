"""What the agent's workers have in common: they wait for work, do it in rounds, and go on after every failure."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tocsin.agent.runtime.events import AgentTrouble
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance
from tocsin.clients import Answer, RouterRefused
from tocsin.errors import TocsinError
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused


@dataclass(frozen=True, slots=True)
class More:
    """There may be more to do now."""

    progress: bool = True
    """Whether anything was done; if not, the delays of retries go on growing."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Something failed that may succeed after a delay."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until somebody kicks, or until a time."""

    until: float | None = None


Round: TypeAlias = More | Retry | Idle


class Worker(ABC):
    """Its memory is the store: whoever writes an action there kicks the worker."""

    name = "worker"

    def __init__(self, parts: AgentParts) -> None:
        self._store = parts.store
        self._clients = parts.clients
        self._settings = parts.settings
        self._clock = parts.clock
        self._events = parts.events
        self._kicked = asyncio.Event()
        self.resting = False
        """Whether it waits for a kick or a time, having done all there was."""

    def kick(self) -> None:
        self.resting = False
        self._kicked.set()

    async def run(self) -> None:
        delays = self._settings.retries.delays()
        while True:
            self._kicked.clear()
            try:
                result = await self.work()
            except TocsinError as error:
                self._events.tell(AgentTrouble(self.name, error))
                result = Retry()
            match result:
                case More(progress):
                    delays = self._settings.retries.delays() if progress else delays
                case Retry():
                    await self._clock.wait(self._settings.retries.spread(next(delays), chance()))
                case Idle(until):
                    delays = self._settings.retries.delays()
                    await self._rest(until)

    @abstractmethod
    async def work(self) -> Round:
        """One round."""

    async def _rest(self, until: float | None) -> None:
        if self._kicked.is_set():
            return
        self.resting = True
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._kicked.wait())]
        if until is not None:
            waits.append(asyncio.create_task(self._clock.wait(max(0.0, until - self._clock.now()))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.resting = False
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)  # not each with its CancelledError suppressed, which might be our own


def outcome_of(answer: Answer) -> Response | TocsinError:
    """ERR as the error that `request` would raise."""
    if isinstance(answer.outcome, Refused):
        return RouterRefused(answer.outcome.error)
    return answer.outcome


class Skipped:
    """Rows that a worker does not look at again for now, by connection and version."""

    def __init__(self) -> None:
        self._rows: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[tuple[str, int]]) -> None:
        self._rows.update(rows)

    def __contains__(self, row: tuple[str, int]) -> bool:
        return row in self._rows

    def clear(self) -> None:
        self._rows.clear()
