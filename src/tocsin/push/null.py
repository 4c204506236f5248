"""The null provider: for operators who test a server; accepts everything and delivers nothing (ntf.md 3.6)."""

from __future__ import annotations

import asyncio

from tocsin.push.provider import Accepted, PushOutcome, PushRequest


class NullProvider:
    room = 1000

    def send(self, push: PushRequest) -> asyncio.Future[PushOutcome]:
        answer: asyncio.Future[PushOutcome] = asyncio.get_running_loop().create_future()
        answer.set_result(Accepted())
        return answer

    async def wait_for_room(self) -> None:
        pass

    async def close(self) -> None:
        pass
