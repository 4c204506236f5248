"""Requests that wait for their answers, and the calls that wait for them.

A `Collector` belongs to one call. It gathers outcomes as they arrive and wakes the caller once for many of them.
The callers bound the table: each `request_all` has its window, each `request` is one entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tocsin.clients.requests import Answer, Outcome, Request
from tocsin.errors import TocsinError, UnexpectedResponse
from tocsin.protocol.router_answers import Refused


class Collector:
    """Gathers the outcomes of one call."""

    __slots__ = ("_alarm", "_ready", "_waiter", "waiting")

    def __init__(self) -> None:
        self._ready: list[Answer] = []
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.waiting: dict[bytes, Request] = {}
        """Requests without an outcome, by correlation id."""

    def add(self, request: Request, outcome: Outcome) -> None:
        self._ready.append(Answer(request, outcome))
        self._wake()

    def take(self) -> list[Answer]:
        ready, self._ready = self._ready, []
        return ready

    async def wait(self, deadline: float) -> list[Answer]:
        """Return at least one outcome, or none if the deadline (loop time) has passed.

        Deadlines of later calls may be later, never sooner: one alarm is kept for all of them, and a call that it
        wakes too soon for its own deadline sets the next.
        """
        loop = asyncio.get_running_loop()
        while not self._ready and loop.time() < deadline:
            if self._alarm is None:
                self._alarm = loop.call_at(deadline, self._ring)
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def stop(self) -> None:
        """Cancel the alarm. Call it when the last outcome is taken, or when the call gives up."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class PendingRequests:
    """The requests of a connection that wait for an answer, by correlation id."""

    __slots__ = ("_collectors",)

    def __init__(self) -> None:
        self._collectors: dict[bytes, Collector] = {}

    def __len__(self) -> int:
        return len(self._collectors)

    def expect(self, collector: Collector, corr_id: bytes, request: Request) -> None:
        self._collectors[corr_id] = collector
        collector.waiting[corr_id] = request

    def resolve(self, corr_id: bytes, entity_id: bytes, outcome: Outcome) -> bool:
        """Pass an answer to the call that waits for it. Returns False if there is none."""
        collector = self._collectors.pop(corr_id, None)
        if collector is None:
            return False
        request = collector.waiting.pop(corr_id)
        if entity_id != request.entity_id and not isinstance(outcome, Refused | TocsinError):
            text = f"{request.command.tag.decode()} was answered for another entity"
            outcome = UnexpectedResponse(text, outcome.tag)
        collector.add(request, outcome)
        return True

    def fail(self, corr_ids: Sequence[bytes], error: TocsinError) -> int:
        """Give up those requests that are still waiting, and return their number."""
        return sum(self.resolve(corr_id, b"", error) for corr_id in corr_ids)

    def fail_all(self, error: TocsinError) -> None:
        self.fail(list(self._collectors), error)

    def forget(self, collector: Collector) -> None:
        """The caller has gone: answers to it are late from now on."""
        for corr_id in collector.waiting:
            del self._collectors[corr_id]
        collector.waiting.clear()
        collector.stop()
