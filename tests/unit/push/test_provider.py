from __future__ import annotations

import asyncio

from tests.unit.push.stage import PUSH
from tocsin.push.provider import Accepted, NullProvider, Provider, PushOutcome


async def test_the_null_provider_accepts_everything() -> None:
    provider: Provider = NullProvider()
    await provider.wait_for_room()
    assert provider.room > 0
    outcome: asyncio.Future[PushOutcome] = asyncio.get_running_loop().create_future()
    provider.submit(PUSH, outcome.set_result)
    assert await outcome == Accepted()
    await provider.close()
