from __future__ import annotations

from tests.unit.push.stage import PUSH
from tocsin.push.null import NullProvider
from tocsin.push.provider import Accepted, Provider


async def test_the_null_provider_accepts_everything() -> None:
    provider: Provider = NullProvider()
    await provider.wait_for_room()
    assert provider.room > 0
    assert await provider.send(PUSH) == Accepted()
    await provider.close()
