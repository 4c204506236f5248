"""The faults. Each strikes once, lasts for a moment, and leaves nothing that has to be undone by hand."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from chaos.attackers import (
    exhaust_signatures,
    flood_registrations,
    name_silent_routers,
    read_nothing,
    rewrite_links,
)
from chaos.phones import ChaosPhone
from chaos.world import ChaosWorld, RouterPlace
from tests.doubles.web_push_service import HANG_UP, STALL, Answer, Raw
from tests.doubles.web_push_service import Behaviour as WebPushBehaviour
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
WEB_PUSH_TROUBLES: Final[list[WebPushBehaviour]] = [
    Answer(503),
    Answer(429, {"Retry-After": "1"}),
    Answer(500, body=b"x" * 1000, chunked=True),
    Answer(201, {"Connection": "close"}),
    HANG_UP,
    STALL,
    Raw(b"HTTP/1.1 201 Crea"),
    Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nab"),
]
JUMPS: Final = (-7 * 3600.0, -3600.0, -240.0, -20.0, 20.0, 240.0, 3600.0, 7 * 3600.0)
"""Seconds. A clock is never more than one jump away from the world's time, so no jump passes midnight."""


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


async def jump_clock(world: ChaosWorld, chance: random.Random) -> str:
    """A router's wall clock is set. Sometimes it is set right soon, sometimes it stays wrong until the next jump."""
    router, jump = chance.choice(world.routers), chance.choice(JUMPS)
    before = router.sickness.clock_offset - world.clock_base
    router.sickness.clock_offset = world.clock_base + jump
    await asyncio.sleep(chance.uniform(SHORTEST, LONGEST))
    stays = chance.random() < 0.5
    if not stays:
        router.sickness.clock_offset = world.clock_base
    return f"the clock of {router.name} jumped from {before:+.0f} s to {jump:+.0f} s{'' if stays else ' and back'}"


async def fill_disk(world: ChaosWorld, chance: random.Random) -> str:
    """Nothing can be written: to the event log of any router, or to the store of an SMP router, or to both."""
    router = chance.choice(world.routers)
    which = chance.choice((("event log",), ("store",), ("event log", "store")))
    if router is world.ntf:
        which = ("event log",)  # its store is PostgreSQL
    error, seconds = chance.choice((errno.ENOSPC, errno.EIO)), chance.uniform(SHORTEST, 3.0)
    async with _failing_disk(router, which, error):
        await asyncio.sleep(seconds)
    return f"{errno.errorcode[error]} for {seconds:.1f} s: {' and '.join(which)} of {router.name}"


async def kill_smp_while_its_disk_is_full(world: ChaosWorld, chance: random.Random) -> str:
    router = chance.choice(world.smp)
    router.sickness.disk_errors = errno.ENOSPC, 0
    await asyncio.sleep(chance.uniform(SHORTEST, LONGEST))
    await router.kill()
    router.sickness.disk_errors = 0, 0
    await router.start()
    return f"kill -9 of {router.name} while its disk was full"


@asynccontextmanager
async def _failing_disk(router: RouterPlace, which: tuple[str, ...], error: int) -> AsyncIterator[None]:
    """Let writes fail, and count the events that are lost. No other fault strikes meanwhile."""
    before = await router.lost_events()
    router.sickness.disk_errors = error * ("store" in which), error * ("event log" in which)
    try:
        yield
    finally:
        router.sickness.disk_errors = 0, 0
    router.events_lost += await router.lost_events() - before


async def restart_database(world: ChaosWorld, _chance: random.Random) -> str:
    await world.database.restart()
    return "restart of PostgreSQL"


async def freeze_database(world: ChaosWorld, chance: random.Random) -> str:
    seconds = chance.uniform(0.5, 4.0)
    await world.database.freeze(seconds)
    return f"PostgreSQL frozen for {seconds:.1f} s"


async def read_only_database(world: ChaosWorld, chance: random.Random) -> str:
    seconds = chance.uniform(SHORTEST, 3.0)
    await world.database.read_only(seconds)
    return f"PostgreSQL refused changes for {seconds:.1f} s"


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


async def web_push_outage(world: ChaosWorld, chance: random.Random) -> str:
    seconds = chance.uniform(SHORTEST, LONGEST)
    await world.web.leave()
    await asyncio.sleep(seconds)
    await world.web.listen()
    return f"the Web Push service was away for {seconds:.1f} s"


async def web_push_trouble(world: ChaosWorld, chance: random.Random) -> str:
    behaviour = chance.choice(WEB_PUSH_TROUBLES)
    times = chance.randrange(1, 10)
    world.web.behaviours.extend([behaviour] * times)
    what = behaviour.status if isinstance(behaviour, Answer) else type(behaviour).__name__
    return f"the next {times} Web Pushes meet {what}"


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
    now = int(world.now() * 1000)
    for phone in phones:
        if phone.by_web_push:
            world.web.by_path[urlsplit(phone.endpoint).path] = Answer(410)
        else:
            behaviour = Respond(410, "Unregistered", timestamp=now)
            world.apns.behave(behaviour, device_token=phone.device, times=None)
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
            await phone.keep_secrets()  # pushes may be under way
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
        jump_clock,
        fill_disk,
        kill_smp_while_its_disk_is_full,
        restart_database,
        freeze_database,
        read_only_database,
        kill_ntf_while_the_database_is_frozen,
        cut_connections,
        half_close,
        delay,
        stall,
        provider_outage,
        provider_trouble,
        web_push_outage,
        web_push_trouble,
        change_device_tokens,
        invalidate_tokens,
        delete_tokens,
        flood_registrations,
        name_silent_routers,
        exhaust_signatures,
        rewrite_links,
        read_nothing,
    )
}
