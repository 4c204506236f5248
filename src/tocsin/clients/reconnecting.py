"""One client after another: when a session is lost, the next one is opened, after a growing delay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from tocsin.clients.settings import Backoff
from tocsin.errors import RemoteProtocolError, TransportError

C = TypeVar("C")


async def reconnecting(
    connect: Callable[[], AbstractAsyncContextManager[C]], backoff: Backoff
) -> AsyncGenerator[C, None]:
    """Yield clients forever. The caller uses each until it is lost, then asks for the next:

        async for client in SmpClient.sessions(address):
            try:
                …
            except ConnectionLost:
                continue

    A successful session resets the delays. Other failures appear only in the metrics: the
    router may be down, restarting or wrongly configured for a while, which is no reason to give up.
    """
    delays = backoff.delays()
    while True:
        try:
            async with connect() as client:
                delays = backoff.delays()
                yield client
        except (TransportError, RemoteProtocolError):
            pass
        # Not a secret: it keeps clients of one router from reconnecting all at once.
        chance = random.random()  # noqa: S311
        await asyncio.sleep(backoff.spread(next(delays), chance))
