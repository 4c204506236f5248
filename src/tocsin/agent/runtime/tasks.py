"""Tasks of an agent that run until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tocsin.agent.runtime.event_queue import EventQueue
from tocsin.agent.runtime.events import AgentTrouble


class BackgroundTasks:
    """A task that fails is told to the app and takes no other with it."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def errands_under_way(self) -> bool:
        """Whether a task runs that comes to its end by itself."""
        return bool(self._errands)

    def start(self, work: Coroutine[Any, Any, None], name: str, *, errand: bool = False) -> None:
        """An errand ends by itself; whoever closes the agent in an orderly way waits for it."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(self._watched(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if errand:
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)
        # Cancelled before its first step, the task has not begun with the work.
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
