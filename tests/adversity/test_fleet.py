"""A fleet of three NTF routers on one PostgreSQL, three SMP routers and traffic, while one after the other fails.

The fleet subscribes at one SMP router by service certificates, at another one by direct notifications, and at the third
to each queue alone. Each life has one fault: an instance is killed, stands still for longer than its lease, is cut from
the database or from all SMP routers, has a clock that jumps, or is restarted in order, or an SMP router is killed.
Afterwards each device has been notified of the newest message of every queue, the accounting adds up, and nothing was
pushed more than twice. The instances note when they go by a lease: no two ever go by the same one.

TOCSIN_FLEET_KILLS sets how many faults there are, TOCSIN_KILL_SEED what is decided by chance.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from tests.doubles import watched_leases
from tests.doubles.fleet_delivery import DIRECT, SMP_ROUTERS, WAYS, FleetDelivery, fleet_delivery

FAULTS: Final = int(os.environ.get("TOCSIN_FLEET_KILLS", "8"))
SEED: Final = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
SIZE: Final = 3
LEASE: Final = 3.0
KINDS: Final = ("kill", "freeze", "wall", "hold", "restart", "sleep", "break", "smp")
NETWORK_KINDS: Final = ("refuse", "vanish")
MINUTE, HOUR = 60.0, 3600.0


async def fault(parts: FleetDelivery, kind: str, chance: random.Random) -> None:
    """Begin and end one fault. Traffic goes on meanwhile."""
    number = chance.randrange(SIZE)
    longer_than_a_lease = LEASE * chance.uniform(1.1, 2.0)
    match kind:
        case "kill":
            await parts.kill_instance(number)
            await asyncio.sleep(chance.uniform(0, longer_than_a_lease))  # others take over, or have not yet
            await parts.start_instance(number)
        case "freeze":
            parts.freeze(number)
            await asyncio.sleep(longer_than_a_lease)
            parts.thaw(number)
        case "hold" | "break":
            parts.cut(number, silently=kind == "hold")
            await asyncio.sleep(longer_than_a_lease)
            parts.join(number)
        case "refuse" | "vanish":
            number = await parts.holder_of(DIRECT)
            began = asyncio.get_running_loop().time()
            parts.cut_network(number, silently=kind == "vanish")
            await parts.until_handed_over(number)  # it stays cut for the rest of this life
            print(
                f"others had its SMP routers {asyncio.get_running_loop().time() - began:.1f} s after the cut"
            )
        case "wall":
            ahead = chance.choice((-1, 1)) * chance.uniform(5 * MINUTE, 5 * HOUR)
            parts.instances[number].clocks.set(wall=ahead)
            await asyncio.sleep(longer_than_a_lease)  # traffic goes on with it, and for the rest of this life
        case "sleep":  # as after a pause of the machine, or from a snapshot of it
            ahead = chance.choice((-1, 1)) * chance.uniform(MINUTE, HOUR)
            parts.instances[number].clocks.set(boot=ahead, wall=ahead)
            await asyncio.sleep(longer_than_a_lease)  # it joins again meanwhile
        case "restart":
            for each in range(SIZE):
                await parts.restart(each)
        case "smp":
            await parts.kill_smp(chance.randrange(SMP_ROUTERS))


async def lives(parts: FleetDelivery, kinds: Sequence[str], count: int) -> None:
    """Traffic with one fault after the other, and what must be true after each."""
    chance = random.Random(SEED)
    loop = asyncio.get_running_loop()
    for life in range(count):
        kind = kinds[life % len(kinds)]
        traffic = [asyncio.create_task(parts.traffic(chance)) for _ in range(2)]
        try:
            await asyncio.sleep(chance.uniform(0.1, 1.0))  # so that something is under way
            await fault(parts, kind, chance)
            await parts.add_chat(chance.choice(parts.chats).device, chance.randrange(SMP_ROUTERS), chance)
        finally:
            for task in traffic:
                task.cancel()
            await asyncio.gather(*traffic, return_exceptions=True)
        ended = loop.time()
        await parts.compare()
        print(f"{kind}: everything had arrived {loop.time() - ended:.1f} s after the end of the fault")
        notes = watched_leases.read(parts.notes)
        assert notes
        assert watched_leases.doubled(notes) == []
        assert parts.pushed_most_often() <= 2
        for number, instance in enumerate(parts.instances):
            instance.clocks.set()
            parts.join_network(number)
    assert await parts.ways() == WAYS
    accounting = await parts.accounting()
    assert accounting["received"] >= accounting["accepted"] > 0
    print(accounting, parts.pushed_most_often())


@pytest.mark.timeout(120 + 60 * FAULTS)
async def test_no_notification_is_lost_when_instances_fail(tmp_path: Path, url: str) -> None:
    async with fleet_delivery(tmp_path, url, size=SIZE, lease=LEASE) as parts:
        await lives(parts, KINDS, FAULTS)


@pytest.mark.timeout(120 + 20 * FAULTS)
async def test_no_notification_is_lost_when_an_instance_does_not_reach_the_smp_routers(
    tmp_path: Path, url: str
) -> None:
    async with fleet_delivery(tmp_path, url, size=SIZE, lease=LEASE, cut_networks=True) as parts:
        await lives(parts, NETWORK_KINDS, FAULTS // 4)


async def test_notifications_go_on_while_instances_are_restarted_one_by_one(tmp_path: Path, url: str) -> None:
    """On a busy machine an outcome may come after its shard was given back: then it is pushed twice.

    The longest wait is printed.
    """
    async with fleet_delivery(tmp_path, url, size=SIZE, lease=LEASE) as parts:
        probing = asyncio.create_task(parts.probe())
        try:
            for number in range(SIZE):
                await parts.restart(number)
                await parts.until_shared()
            assert not probing.done(), probing
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        await parts.compare()
        waits = parts.waits()
        assert len(waits) == len(parts.probes) > 0
        assert parts.pushed_most_often() <= 2
        assert watched_leases.doubled(watched_leases.read(parts.notes)) == []
        print(f"pushed {parts.pushed_most_often()} times at most;", *parts.said("leases are lost"))
        print(
            f"{len(waits)} probes waited for {max(waits):.2f} s at most, {median(waits):.3f} s in the middle"
        )
