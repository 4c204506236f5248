"""The null provider: for operators who test a server; accepts everything and delivers nothing (ntf.md 3.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tocsin.push.provider import Accepted, PushOutcome, PushRequest


class NullProvider:
    room = 1000

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(answered, Accepted())

    async def wait_for_room(self) -> None:
        pass

    async def close(self) -> None:
        pass
