"""Attackers: what anyone can do who reaches the routers, while everybody else goes on."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from chaos.proxy import HOST
from chaos.world import ChaosWorld
from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_process import NtfProcess
from tests.doubles.smp_harness import ed25519
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import VerifyToken

SECONDS: Final = 1.5
NAMES: Final = 40


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
    with suppress(TocsinError, TimeoutError, OSError, AssertionError):
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
        with suppress(TocsinError, TimeoutError, OSError, AssertionError):
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
