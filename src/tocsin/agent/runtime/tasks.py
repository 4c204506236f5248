"""Background tasks of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tocsin.agent.runtime.events import AgentTrouble, EventQueue


class BackgroundTasks:
    """Owns tasks until the agent closes. A task that fails is reported to the app and does not affect the others."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False
        self.quieter = asyncio.Event()
        """Set whenever an errand ends or a worker begins to rest, for those who wait for that."""

    @property
    def errands_under_way(self) -> bool:
        """Whether a task runs that ends by itself."""
        return bool(self._errands)

    def start(self, work: Coroutine[Any, Any, None], name: str, *, errand: bool = False) -> None:
        """Start a task. An errand ends by itself, so an agent is at rest only after it."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(self._watched(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if errand:
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)
            task.add_done_callback(lambda _: self.quieter.set())
        # A task that is cancelled before its first step never starts the coroutine.
        task.add_done_callback(lambda _: work.close())

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watched(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception as error:
            self._events.tell(AgentTrouble(name, error))
