"""What happens, told to every page that is open: server-sent events.

Whoever begins to follow is told everything as it is now, and then every change. One that does not read is let go when
too much waits for it: a browser connects again by itself, and is told everything again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

MOST_WAITING: Final = 256
STILL_HERE_SECONDS: Final = 15.0


class EventStream:
    def __init__(self, everything: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """`everything`: names and contents of the events that describe the present."""
        self._everything = everything
        self._followers: set[asyncio.Queue[bytes | None]] = set()
        self.let_go = 0
        """Followers that did not read."""

    @property
    def followers(self) -> int:
        return len(self._followers)

    def tell(self, name: str, content: object) -> None:
        if not self._followers:
            return
        event = as_event(name, content)
        for follower in list(self._followers):
            try:
                follower.put_nowait(event)
            except asyncio.QueueFull:
                self._let_go(follower)

    def _let_go(self, follower: asyncio.Queue[bytes | None]) -> None:
        self.let_go += 1
        self._followers.discard(follower)
        while not follower.empty():
            follower.get_nowait()
        follower.put_nowait(None)

    async def follow(self) -> AsyncIterator[bytes]:
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._followers.add(waiting)
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
            self._followers.discard(waiting)


def as_event(name: str, content: object) -> bytes:
    """One event: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n".encode()
