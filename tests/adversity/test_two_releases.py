"""A fleet is upgraded while it serves: instances of the last release and of this one, side by side, under traffic.

The first instance of this release changes the tables, and those of the last one go on. Faults hit both; then the old
ones are stopped one after the other. TOCSIN_RELEASE_FAULTS sets how many faults there are while both run, and
TOCSIN_RELEASE_MINUTES over how long they are spread, with little traffic.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from tests.doubles import watched_leases
from tests.doubles.fleet_delivery import SMP_ROUTERS, WAYS, FleetDelivery, fleet_delivery
from tests.doubles.last_release import last_release
from tocsin.ntf_router.store.postgres.schema import has_store

FAULTS: Final = int(os.environ.get("TOCSIN_RELEASE_FAULTS", "2"))
MINUTES: Final = float(os.environ.get("TOCSIN_RELEASE_MINUTES", "0"))
PAUSE: Final = 1.0 if MINUTES else 0.01
"""Seconds at most between two messages of a sender."""
SEED: Final = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
OLD: Final = 2
NEW: Final = 2
LEASE: Final = 3.0
NEWER: Final = "simplex_ntf_fleet_unreachable"
"""A metric that the last release does not have."""
KINDS: Final = ("freeze", "hold", "smp", "break")


async def fault(parts: FleetDelivery, kind: str, number: int, chance: random.Random) -> None:
    longer_than_a_lease = LEASE * chance.uniform(1.1, 2.0)
    match kind:
        case "freeze":
            parts.freeze(number)
            await asyncio.sleep(longer_than_a_lease)
            parts.thaw(number)
        case "hold" | "break":
            parts.cut(number, silently=kind == "hold")
            await asyncio.sleep(longer_than_a_lease)
            parts.join(number)
        case "smp":
            await parts.kill_smp(chance.randrange(SMP_ROUTERS))


async def is_migrated(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return await has_store(connection, "ntf_server")
    finally:
        await connection.close()


@pytest.mark.timeout(180 + 60 * FAULTS + 60 * MINUTES)
async def test_nothing_is_lost_while_two_releases_serve(tmp_path: Path, url: str) -> None:
    chance = random.Random(SEED)
    source = last_release(tmp_path / "release")
    async with fleet_delivery(tmp_path, url, size=OLD, lease=LEASE, source=source) as parts:
        assert not await is_migrated(url)
        traffic = [asyncio.create_task(parts.traffic(chance, PAUSE)) for _ in range(2)]
        try:
            await parts.start_instances([await parts.add_place() for _ in range(NEW)])
            assert await is_migrated(url)
            await parts.until_shared()  # both releases have a part of the pushes
            said = [(await each.running.get("/metrics"))[1] for each in parts.instances]
            assert [NEWER in each for each in said] == [False] * OLD + [True] * NEW
            for place in range(FAULTS):
                await fault(parts, KINDS[place % len(KINDS)], place % (OLD + NEW), chance)
                await parts.add_chat(chance.choice(parts.chats).device, chance.randrange(SMP_ROUTERS), chance)
                await parts.until_shared()
                if MINUTES:
                    await asyncio.sleep(60 * MINUTES / FAULTS)
                    await parts.compare()
                    print(f"{time.ctime()}: after {KINDS[place % len(KINDS)]}", await parts.accounting())
            for number in range(OLD):
                await parts.end_instance(number)
            await parts.until_shared()
        finally:
            for task in traffic:
                task.cancel()
            await asyncio.gather(*traffic, return_exceptions=True)
        await parts.compare()
        assert await parts.ways() == WAYS
        assert parts.pushed_most_often() <= 2
        notes = watched_leases.read(parts.notes)
        assert watched_leases.doubled(notes) == []
        assert {note.process for note in notes} == {each.running.process_id for each in parts.instances}
        print(await parts.accounting(), parts.pushed_most_often())
