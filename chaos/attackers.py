"""Attackers: what anyone can do who reaches the routers, while everybody else goes on."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

from chaos.proxy import HOST
from chaos.world import ChaosWorld, RouterPlace
from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_process import NtfProcess
from tests.doubles.smp_harness import Asked, SmpTestClient, authorized_with, ed448, ed25519
from tests.doubles.smp_process import SmpProcess
from tocsin.crypto.keys import AuthPublicKey
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import VerifyToken
from tocsin.protocol.ping import Ping
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.protocol.smp.recipient_commands import ReplaceRecipientKeys, SetLinkData, Subscribe

SECONDS: Final = 1.5
NAMES: Final = 40
KEYS: Final = 225
"""As many as RKEY can name in one block."""
COMMANDS_IN_BLOCK: Final = 80
WRONG_SIGNATURE: Final = authorized_with(bytes(114))
DEAF: Final = 5
ENDS: Final = (TocsinError, TimeoutError, OSError, AssertionError)
"""How attacks end, whatever the router does about them."""


class _Pushes:
    """The pushes to an attacker's device."""

    def __init__(self, world: ChaosWorld) -> None:
        self._apns = world.apns

    async def next_push(self, device_token: bytes) -> Push:
        return parse_push_json((await self._apns.next_push(device_token)).payload)


async def _device(world: ChaosWorld, name: bytes) -> Device:
    assert isinstance(world.ntf.process, NtfProcess)
    provider: Any = _Pushes(world)
    return Device(await world.ntf.process.connect(), provider, name)


async def flood_registrations(world: ChaosWorld, chance: random.Random) -> str:
    """Two connections repeat TNEW: the same one, with other keys, and for other device tokens."""
    name = b"flood-%d" % chance.randrange(1_000_000)
    counts = await asyncio.gather(*(_flood(world, name, kind) for kind in ("same", "keys", "devices")))
    return f"{sum(counts)} TNEW of an attacker"


async def _flood(world: ChaosWorld, name: bytes, kind: str) -> int:
    count = 0
    with suppress(*ENDS):
        device = await _device(world, name)
        async with asyncio.timeout(SECONDS):
            while True:
                if kind == "keys":
                    device = replace(device, key=ed25519())
                elif kind == "devices":
                    device = replace(device, device_token=b"%s-%d" % (name, count))
                await device.client.ask(device.register_command(), key=device.key)
                count += 1
    return count


async def name_silent_routers(world: ChaosWorld, chance: random.Random) -> str:
    """A verified token names SMP routers that accept connections and never say a word."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    named = 0
    try:
        with suppress(*ENDS):
            device = await _device(world, b"namer-%d" % chance.randrange(1_000_000))
            await device.register()
            await device.ask(VerifyToken(await device.code()))
            for _ in range(NAMES):
                router = RouterLocation((HOST,), str(port), os.urandom(32))
                command = device.subscribe_command(NotifierQueue(router, os.urandom(24)), ed25519())
                await device.client.ask(command, key=device.key)
                named += 1
        await asyncio.sleep(SECONDS)
        return f"an attacker named {named} silent SMP routers, {len(writers)} connections came"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def exhaust_signatures(world: ChaosWorld, chance: random.Random) -> str:
    """A queue gets as many Ed448 keys as possible, then wrongly signed commands, each to be tried with all of them."""
    router = chance.choice(world.smp)
    blocks = 0
    with suppress(*ENDS):
        async with _smp_client(router) as client:
            queue = await client.new_queue(mode=QueueMode.CONTACT)
            await client.ask(ReplaceRecipientKeys(_public_keys()), queue.recipient_id, queue.key)
            asked = [Asked(Subscribe(), queue.recipient_id, WRONG_SIGNATURE)] * COMMANDS_IN_BLOCK
            async with asyncio.timeout(SECONDS):
                while True:
                    await client.send(*asked)
                    blocks += 1
    return f"{blocks} blocks of wrongly signed commands to {router.name}"


async def rewrite_links(world: ChaosWorld, chance: random.Random) -> str:
    """One queue's link data is written again and again, which makes the store log grow."""
    router = chance.choice(world.smp)
    times = 0
    with suppress(*ENDS):
        async with _smp_client(router) as client:
            queue = await client.new_queue(mode=QueueMode.CONTACT)
            command = SetLinkData(os.urandom(24), LinkData(bytes(100), bytes(13_000)))
            async with asyncio.timeout(SECONDS):
                while True:
                    await client.ask(command, queue.recipient_id, queue.key)
                    times += 1
    return f"an attacker wrote link data to {router.name} {times} times"


async def read_nothing(world: ChaosWorld, chance: random.Random) -> str:
    """Connections that ask, and never read the answers."""
    router = chance.choice(world.smp)

    async def ask_on() -> int:
        blocks = 0
        with suppress(*ENDS):
            async with _smp_client(router) as client, asyncio.timeout(SECONDS):
                while True:
                    await client.send(*[Asked(Ping())] * COMMANDS_IN_BLOCK)
                    blocks += 1
        return blocks

    counts = await asyncio.gather(*(ask_on() for _ in range(DEAF)))
    return f"{DEAF} connections sent {sum(counts)} blocks to {router.name} and read nothing"


@asynccontextmanager
async def _smp_client(router: RouterPlace) -> AsyncIterator[SmpTestClient]:
    assert isinstance(router.process, SmpProcess)
    client = await router.process.connect()
    try:
        yield client
    finally:
        client.connection.abort()


@cache
def _public_keys() -> tuple[AuthPublicKey, ...]:
    return tuple(ed448().public for _ in range(KEYS))
