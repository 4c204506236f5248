"""No command stalls other devices: as many expensive commands as the router reads at once, and a device that pings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from tests.doubles.direct_devices import DirectDevice, direct_client, direct_device
from tests.doubles.fairness import MOST_TIMES_QUIET, StretchCounter, full_block, ping_ratio, quiet_ping
from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, NtfTestClient, ntf_router, until
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import Asked, ed448, ed25519, x25519
from tocsin.crypto.keys import Ed448PublicKey
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.dialects import DIRECT_NTF
from tocsin.protocol.direct.ntf_messages import ForwardPacket
from tocsin.protocol.direct.vapid_keys import AskVapidKey
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf import subscription_commands, token_commands
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ping import Ping
from tocsin.transport.block_connection import DEFAULT_READ_LIMIT_BYTES
from tocsin.transport.turns import SLICE_SECONDS

BLOCKS: Final = DEFAULT_READ_LIMIT_BYTES // NTF.block_size
VERSIONS: Final = range(NTF.supported.lowest, NTF.supported.highest + 1)
QUEUE: Final = NotifierQueue(RouterLocation((HOST,), "1", bytes(32)), b"n" * 24)


def of_token(make: Callable[[], Command]) -> Callable[[Device], Asked]:
    return lambda device: Asked(make(), device.token_id, device.key)


def a_device_token() -> DeviceToken:
    return DeviceToken(TEST_PROVIDER, os.urandom(32).hex().encode())


ATTACKS: Final[dict[type[Command], Callable[[Device], Asked]]] = {
    token_commands.RegisterToken: lambda device: Asked(
        token_commands.RegisterToken(a_device_token(), device.key.public, x25519().public), b"", device.key
    ),
    token_commands.VerifyToken: of_token(lambda: token_commands.VerifyToken(bytes(32))),
    token_commands.CheckToken: of_token(token_commands.CheckToken),
    token_commands.ReplaceToken: of_token(lambda: token_commands.ReplaceToken(a_device_token())),
    token_commands.DeleteToken: of_token(token_commands.DeleteToken),
    token_commands.SetPeriodicPush: of_token(lambda: token_commands.SetPeriodicPush(20)),
    subscription_commands.SubscribeToQueue: lambda device: Asked(
        subscription_commands.SubscribeToQueue(device.token_id, QUEUE, ed25519()), b"", device.key
    ),
    subscription_commands.CheckSubscription: of_token(subscription_commands.CheckSubscription),
    subscription_commands.DeleteSubscription: of_token(subscription_commands.DeleteSubscription),
    Ping: lambda _device: Asked(Ping()),
}
"""The most expensive form of each command."""


DIRECT: Final[dict[str, Any]] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}


def test_every_command_is_tried() -> None:
    """VKEY is answered from memory, as PING."""
    assert {*ATTACKS, ForwardPacket, AskVapidKey} == {*NTF.commands.kinds, *DIRECT_NTF.commands.kinds}


@asynccontextmanager
async def attacked(
    router: NtfHarness, device: Device, version: int, kind: type[Command], legal: bool
) -> AsyncIterator[None]:
    client = await router.connect(version)
    block = full_block(client, lambda _corr_id: ATTACKS[kind](device), legal=legal)
    async with flooded(router, client, [block] * BLOCKS):
        yield


@asynccontextmanager
async def flooded_with_packets(router: NtfHarness, device: DirectDevice, legal: bool) -> AsyncIterator[None]:
    """A block has room for one packet. Illegal: it opens, and the signature is wrong."""
    client, key = await direct_client(router), None if legal else ed25519()
    packets = [device.packet(NotifierQueue(QUEUE.router, os.urandom(24)), key=key) for _ in range(BLOCKS)]
    requests = [client.session.request(os.urandom(24), b"", ForwardPacket(each), None) for each in packets]
    async with flooded(router, client, [[each] for each in requests]):
        yield


@asynccontextmanager
async def flooded(
    router: NtfHarness, client: NtfTestClient, blocks: list[list[bytes]]
) -> AsyncIterator[None]:
    for block in blocks:
        await client.connection.send(block)
    yield
    session_id = client.session.session_id
    for each in [each for each in router.running.router.connections if each.session.session_id == session_id]:
        each.connection.abort()
    await until(
        lambda: all(each.session.session_id != session_id for each in router.running.router.connections)
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_ping_is_answered_soon_while_another_client_sends_the_most_expensive_blocks(
    version: int,
) -> None:
    slow = {}
    async with ntf_router() as router:
        victim = await router.connect()
        for kind in ATTACKS:
            quiet = await quiet_ping(victim)
            for legal in (False, True):
                device = await router.device()
                device.key = ed448()
                await device.register()
                ratio = await ping_ratio(
                    victim, quiet, partial(attacked, router, device, version, kind, legal)
                )
                if ratio > MOST_TIMES_QUIET:
                    slow[kind.tag, legal] = ratio
    assert slow == {}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("legal", [False, True])
async def test_a_ping_is_answered_soon_while_a_stranger_forwards_packets(legal: bool) -> None:
    async with ntf_router(**DIRECT) as router:
        victim, device = await router.connect(), await direct_device(router)
        quiet = await quiet_ping(victim)
        ratio = await ping_ratio(victim, quiet, partial(flooded_with_packets, router, device, legal))
    assert ratio <= MOST_TIMES_QUIET


async def test_a_connection_gives_way_after_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signature is a step; a slice has four."""
    counter = StretchCounter()

    def refuse(*_arguments: object) -> bool:
        counter.steps += 1
        return False

    async with ntf_router() as router:
        device = await (await router.device()).activate()
        monkeypatch.setattr(Ed448PublicKey, "verifies", refuse)
        router.running.router.turns.clock = counter.clock
        client = await router.connect()
        attack = ATTACKS[token_commands.CheckToken]
        block = full_block(client, lambda _corr_id: attack(device), legal=False)
        await counter.send(client, [block] * BLOCKS)
    assert counter.steps == len(block) * BLOCKS
    assert counter.longest <= SLICE_SECONDS / StretchCounter.STEP_SECONDS + 1
