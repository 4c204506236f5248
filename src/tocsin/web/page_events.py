"""Server-sent events for every open page.

A new subscriber gets the whole present state first and then every change. A subscriber that does not read is dropped
when too many events wait for it: its browser reconnects by itself and gets the whole state again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

MOST_WAITING: Final = 256
STILL_HERE_SECONDS: Final = 15.0


class PageEvents:
    def __init__(self, everything: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """`everything` returns the names and contents of the events that describe the present state."""
        self._everything = everything
        self._subscribers: set[asyncio.Queue[bytes | None]] = set()
        self.dropped = 0
        """Subscribers that did not read."""

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    def send(self, name: str, content: object) -> None:
        if not self._subscribers:
            return
        event = as_event(name, content)
        for subscriber in list(self._subscribers):
            try:
                subscriber.put_nowait(event)
            except asyncio.QueueFull:
                self._drop(subscriber)

    def _drop(self, subscriber: asyncio.Queue[bytes | None]) -> None:
        self.dropped += 1
        self._subscribers.discard(subscriber)
        while not subscriber.empty():
            subscriber.get_nowait()
        subscriber.put_nowait(None)

    async def subscribe(self) -> AsyncIterator[bytes]:
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._subscribers.add(waiting)
        try:
            for name, content in self._everything():
                yield as_event(name, content)
            while True:
                try:
                    async with asyncio.timeout(STILL_HERE_SECONDS):
                        event = await waiting.get()
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            self._subscribers.discard(waiting)


def as_event(name: str, content: object) -> bytes:
    """Encodes one event: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n".encode()
