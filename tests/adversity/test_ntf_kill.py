"""kill -9 of the whole delivery under load: SMP router, NTF router and push provider, again and again.

Each life ends with a kill of one of the three, at a random moment, while messages are sent. Then it is started again,
the traffic stops, and everything is compared: the NTF router's accounting adds up, and for each queue the newest
message whose SEND was answered has reached the device, in a push that it can read, or a newer one has.

It runs with the NTF router's store in memory and in PostgreSQL. TOCSIN_DELIVERY_KILLS sets how many lives there are
with each, TOCSIN_KILL_SEED what is decided by chance in them.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from tests.doubles.whole_delivery import everything
from tocsin.ntf_router.store.postgres.schema import search_path

KILLS: Final = int(os.environ.get("TOCSIN_DELIVERY_KILLS", "4"))
SEED: Final = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
SHORTEST, LONGEST = 0.05, 0.5
"""Seconds of traffic before a kill."""
KEPT_SECONDS: Final = 3.0
"""By the SMP router, of what it has sent: longer than the NTF router waits for its store."""


@pytest.fixture(params=["memory", "postgres"])
def store_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "memory":
        return {"store": "memory"}
    return {"store": "url", "db_connection": request.getfixturevalue("url")}


@pytest.mark.timeout(60 + 40 * KILLS)
async def test_no_notification_is_lost_when_a_part_is_killed(
    tmp_path: Path, store_settings: dict[str, str]
) -> None:
    chance = random.Random(SEED)
    async with everything(tmp_path, store_settings) as parts:
        for life in range(KILLS):
            traffic = [asyncio.create_task(parts.traffic(chance)) for _ in range(2)]
            try:
                await asyncio.sleep(chance.uniform(SHORTEST, LONGEST))
                await parts.kill(("ntf", "smp", "ntf", "apns")[life % 4])
                await asyncio.sleep(chance.uniform(0, SHORTEST))
            finally:
                for task in traffic:
                    task.cancel()
                await asyncio.gather(*traffic, return_exceptions=True)
            await parts.compare()
        accounting = await parts.accounting()
        assert accounting["received"] >= accounting["accepted"] > 0
        assert any(chat.answered for chat in parts.chats)
        print(store_settings["store"], parts.kills, accounting)


@pytest.mark.timeout(60 + 40 * KILLS)
async def test_no_notification_is_lost_when_routers_with_slow_disks_are_killed(tmp_path: Path) -> None:
    """A notification that leaves before its message is on disk would replace one that is."""
    chance = random.Random(SEED)
    async with everything(tmp_path, {"store": "memory"}, slow_disks=True) as parts:
        for life in range(KILLS):
            traffic = [asyncio.create_task(parts.traffic(chance)) for _ in range(4)]
            try:
                await asyncio.sleep(LONGEST + chance.uniform(0, LONGEST))
                await parts.kill(("smp", "smp", "smp", "ntf")[life % 4])
            finally:
                for task in traffic:
                    task.cancel()
                await asyncio.gather(*traffic, return_exceptions=True)
            await parts.compare()
        assert any(chat.answered for chat in parts.chats)


async def test_no_notification_is_lost_when_the_router_is_killed_while_its_database_hangs(
    tmp_path: Path, url: str
) -> None:
    """What it had received and not stored is with the SMP router still, although that was long before the kill."""
    ntf = {"store": "url", "db_connection": url}
    async with everything(tmp_path, ntf, {"notification_confirm_after": KEPT_SECONDS}) as parts:
        assert parts.ntf is not None
        database = await asyncpg.connect(url, server_settings={"search_path": search_path("ntf_server")})
        try:
            async with database.transaction():
                await database.execute("LOCK TABLE pending_notifications IN ACCESS EXCLUSIVE MODE")
                traffic = asyncio.create_task(parts.traffic(random.Random(SEED)))
                await asyncio.sleep(LONGEST)
                traffic.cancel()
                await asyncio.gather(traffic, return_exceptions=True)
                await asyncio.sleep(KEPT_SECONDS + 1)
                await parts.ntf.kill()
        finally:
            await database.close()
        assert any(chat.answered for chat in parts.chats)
        await parts.start_ntf()
        await parts.compare()
