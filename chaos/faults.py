"""The faults. Each strikes once, lasts for a moment, and leaves nothing that has to be undone by hand."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from chaos.attackers import flood_registrations, name_silent_routers
from chaos.phones import ChaosPhone
from chaos.world import ChaosWorld, RouterPlace
from tocsin.push.fake.behaviours import (
    Behaviour,
    CloseConnection,
    CloseMidAnswer,
    Delay,
    GoAway,
    ResetStream,
    Respond,
)

Fault: TypeAlias = Callable[[ChaosWorld, random.Random], Awaitable[str]]
"""Does it, and returns a line about it."""
SHORTEST, LONGEST = 0.1, 1.5
TROUBLES: Final[list[Behaviour]] = [
    GoAway(),
    GoAway(close=True),
    CloseConnection(),
    CloseMidAnswer(),
    ResetStream(),
    Delay(1.0),
    Respond(503, "ServiceUnavailable"),
    Respond(429, "TooManyRequests"),
    Respond(500, "InternalServerError"),
]


async def kill_smp(world: ChaosWorld, chance: random.Random) -> str:
    return await _killed(chance.choice(world.smp), chance)


async def kill_ntf(world: ChaosWorld, chance: random.Random) -> str:
    return await _killed(world.ntf, chance)


async def kill_all_routers(world: ChaosWorld, chance: random.Random) -> str:
    await asyncio.gather(*(_killed(router, chance) for router in world.routers))
    return "kill -9 of all routers"


async def _killed(router: RouterPlace, chance: random.Random) -> str:
    seconds = chance.uniform(0, LONGEST)
    await router.kill()
    await asyncio.sleep(seconds)
    await router.start()
    return f"kill -9 of {router.name}, started after {seconds:.1f} s"


async def renew_certificate(world: ChaosWorld, chance: random.Random) -> str:
    router = chance.choice(world.routers)
    await router.renew_certificate()
    return f"new certificate and graceful restart of {router.name}"


async def restart_database(world: ChaosWorld, _chance: random.Random) -> str:
    await world.database.restart()
    return "restart of PostgreSQL"


async def freeze_database(world: ChaosWorld, chance: random.Random) -> str:
    seconds = chance.uniform(0.5, 4.0)
    await world.database.freeze(seconds)
    return f"PostgreSQL frozen for {seconds:.1f} s"


async def kill_ntf_while_the_database_is_frozen(world: ChaosWorld, chance: random.Random) -> str:
    frozen = asyncio.create_task(world.database.freeze(3.0))
    await asyncio.sleep(chance.uniform(0, 2.5))
    await world.ntf.kill()
    await frozen
    await world.ntf.start()
    return "kill -9 of ntf while PostgreSQL was frozen"


async def cut_connections(world: ChaosWorld, chance: random.Random) -> str:
    router = chance.choice(world.routers)
    return f"{router.proxy.cut()} connections of {router.name} reset"


async def half_close(world: ChaosWorld, chance: random.Random) -> str:
    router = chance.choice(world.routers)
    return f"{router.proxy.half_close()} connections of {router.name} half-closed"


async def delay(world: ChaosWorld, chance: random.Random) -> str:
    router, seconds = chance.choice(world.routers), chance.uniform(SHORTEST, LONGEST)
    router.proxy.delay = chance.uniform(0.05, 0.5)
    try:
        await asyncio.sleep(seconds)
        return f"{router.name} late by {router.proxy.delay:.2f} s for {seconds:.1f} s"
    finally:
        router.proxy.delay = 0.0


async def stall(world: ChaosWorld, chance: random.Random) -> str:
    router, seconds = chance.choice(world.routers), chance.uniform(1.0, 6.0)
    router.proxy.stalled.clear()
    try:
        await asyncio.sleep(seconds)
    finally:
        router.proxy.stalled.set()
    return f"{router.name} silent for {seconds:.1f} s"


async def provider_outage(world: ChaosWorld, chance: random.Random) -> str:
    seconds = chance.uniform(SHORTEST, LONGEST)
    world.apns.refuse_connections()
    world.apns.close_connections()
    await asyncio.sleep(seconds)
    await world.apns.listen()
    return f"the push provider was away for {seconds:.1f} s"


async def provider_trouble(world: ChaosWorld, chance: random.Random) -> str:
    behaviour = chance.choice(TROUBLES)
    times = chance.randrange(1, 30)
    world.apns.behave(behaviour, times=times)
    return f"the next {times} pushes meet {type(behaviour).__name__}"


async def change_device_tokens(world: ChaosWorld, chance: random.Random) -> str:
    """TRPL: phones get other device tokens, and verify them."""
    phones = _some(world, chance)
    for phone in phones:
        phone.change_device_token(chance.randrange(1_000_000))
    await _register(phones)
    return f"{len(phones)} phones have other device tokens"


async def invalidate_tokens(world: ChaosWorld, chance: random.Random) -> str:
    """The provider refuses device tokens for good; the apps register others when they are opened."""
    phones = _some(world, chance)
    _lose_tokens(world, phones)
    now = int(time.time() * 1000)
    for phone in phones:
        behaviour = Respond(410, "Unregistered", timestamp=now)
        world.apns.behave(behaviour, device_token=phone.device_token, times=None)
    await asyncio.sleep(chance.uniform(SHORTEST, LONGEST))
    for phone in phones:
        phone.change_device_token(chance.randrange(1_000_000))
    await _register(phones)
    return f"the provider unregistered {len(phones)} phones"


async def delete_tokens(world: ChaosWorld, chance: random.Random) -> str:
    """TDEL, then everything anew."""
    phones = _some(world, chance)
    _lose_tokens(world, phones)
    for phone in phones:
        async with phone.registering:
            await phone.agent.tokens.delete()
    await _register(phones)
    return f"{len(phones)} phones deleted their tokens and registered again"


def _some(world: ChaosWorld, chance: random.Random) -> list[ChaosPhone]:
    return chance.sample(world.phones, max(1, len(world.phones) // 20))


def _lose_tokens(world: ChaosWorld, phones: list[ChaosPhone]) -> None:
    world.tokens_lost = True
    for phone in phones:
        phone.had_no_token = True


async def _register(phones: list[ChaosPhone]) -> None:
    await asyncio.gather(*(phone.become_active() for phone in phones))


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        kill_smp,
        kill_ntf,
        kill_all_routers,
        renew_certificate,
        restart_database,
        freeze_database,
        kill_ntf_while_the_database_is_frozen,
        cut_connections,
        half_close,
        delay,
        stall,
        provider_outage,
        provider_trouble,
        change_device_tokens,
        invalidate_tokens,
        delete_tokens,
        flood_registrations,
        name_silent_routers,
    )
}
