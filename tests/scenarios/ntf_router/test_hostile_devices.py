"""Devices that are slow, many, hasty or wrong: nobody else notices."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.doubles.ntf_harness import Device, NtfHarness, NtfTestClient, ntf_router, until
from tests.doubles.smp_harness import (
    AUTH,
    HAS_AUTH,
    NO_AUTH,
    OK,
    PATIENCE,
    SIG0,
    SYNTAX,
    UNKNOWN,
    Asked,
    Raw,
    Received,
    ed25519,
)
from tocsin.ntf_router import router as ntf_router_module
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import TokenChecked
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import CheckToken, DeleteToken, SetPeriodicPush
from tocsin.protocol.ping import Ping, Pong

ACTIVE = TokenChecked(TokenStatus(TokenState.ACTIVE))


async def test_a_client_that_never_reads_is_not_read_either() -> None:
    """It fills its own buffers, then it waits; all the time others are served."""
    async with ntf_router(write_queue_blocks=4) as ntf:
        device = await ntf.active_device()
        deaf = await ntf.connect()
        sent = 0

        async def shout() -> None:
            nonlocal sent
            while True:
                await deaf.send(*(Asked(Ping()) for _ in range(10)))
                sent += 1

        shouting = asyncio.create_task(shout())
        await until(lambda: sent > 100)
        counters, quiet = ntf.running.state.counters, 0
        async with asyncio.timeout(15):
            while quiet < 5:  # until nothing of it is read for long
                before = counters.commands
                for _ in range(50):
                    assert await device.status() == ACTIVE.status
                quiet = quiet + 1 if counters.commands == before + 50 else 0
        shouting.cancel()
        await asyncio.gather(shouting, return_exceptions=True)
        deaf.connection.abort()
        ntf.clients.remove(deaf)
        await until(lambda: len(ntf.running.router.connections) == 1)


async def test_many_connections_are_served_side_by_side() -> None:
    async with ntf_router() as ntf:
        clients = [await ntf.connect() for _ in range(100)]

        async def use(client: NtfTestClient) -> None:
            device = Device(client, ntf.provider, os.urandom(8).hex().encode())
            await device.activate()
            assert await device.status() == ACTIVE.status

        await asyncio.gather(*(use(each) for each in clients))
        assert len(ntf.running.router.connections) == 100
        assert (await ntf.store.counts()).tokens == 100


async def test_more_connections_than_allowed_are_refused_and_the_others_go_on() -> None:
    async with ntf_router(max_connections=3) as ntf:
        device = await ntf.active_device()
        for _ in range(2):
            await ntf.connect()
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever TLS makes of it
            await asyncio.wait_for(ntf.connect(), PATIENCE)
        assert await device.status() == ACTIVE.status


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_pipelined_commands_are_answered_in_their_order(version: int) -> None:
    """Many more blocks than wait inside the router."""
    count = 3 * ntf_router_module.BLOCKS_WAITING
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        client = await ntf.connect(version)
        sent: list[bytes] = []

        async def send() -> None:
            for number in range(count):
                asked = Asked(Ping()) if number % 3 else Asked(CheckToken(), device.token_id, device.key)
                sent.extend(await client.send(asked))

        sending = asyncio.create_task(send())
        received: list[Received] = []
        while len(received) < count:
            received.extend(await client.block())
        await sending
        assert [each.corr_id for each in received] == sent
        assert [each.response for each in received] == [
            Pong() if number % 3 else ACTIVE for number in range(count)
        ]


def mixed(device: Device) -> list[tuple[Asked, Response, bool]]:
    """Commands, their answers, and whether they are answered in the first place."""
    other = ed25519()
    return [
        (Asked(Ping()), Pong(), False),
        (Asked(Raw(b"HELLO")), UNKNOWN, True),
        (Asked(CheckToken(), device.token_id, device.key), ACTIVE, False),
        (Asked(CheckToken(), device.token_id, other), AUTH, True),
        (Asked(CheckToken(), device.token_id), NO_AUTH, True),
        (Asked(CheckToken(), b"", device.key), NO_AUTH, True),
        (Asked(CheckToken(), os.urandom(24), device.key), AUTH, True),
        (Asked(Raw(b"TCRN"), device.token_id, device.key), SYNTAX, True),
        (Asked(Ping(), b"", SIG0), HAS_AUTH, True),
        (Asked(SetPeriodicPush(20), device.token_id, device.key), OK, False),
    ]


@pytest.mark.parametrize("version", [2, 3])
async def test_good_and_bad_commands_in_one_block(version: int) -> None:
    """Bad ones are answered first, in their order; then the good ones, in theirs (ntf.md 4.1)."""
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        client = await ntf.connect(version)
        for _ in range(3):
            await told_apart(client, mixed(device))
        assert ntf.running.state.counters.auth_failures == 6


async def told_apart(client: NtfTestClient, commands: list[tuple[Asked, Response, bool]]) -> None:
    expected: list[tuple[bytes, Response]] = []
    for part in blocks(commands):
        corr_ids = await client.send(*(asked for asked, _, _ in part))
        answers = [
            (corr_id, answer, early) for corr_id, (_, answer, early) in zip(corr_ids, part, strict=True)
        ]
        expected += [(corr_id, answer) for corr_id, answer, early in answers if early]
        expected += [(corr_id, answer) for corr_id, answer, early in answers if not early]
        seen: list[tuple[bytes, Response]] = []
        while len(seen) < len(expected):
            seen += [(each.corr_id, each.response) for each in await client.block()]
        assert seen == expected
        expected.clear()


def blocks(commands: list[Any]) -> list[list[Any]]:
    """Three commands with their signatures fit a block of 512 bytes."""
    return [commands[start : start + 3] for start in range(0, len(commands), 3)]


async def test_one_command_of_each_kind_in_a_block_of_its_own_at_version_1() -> None:
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        client = await ntf.connect(1, alpn=())
        for asked, answer, _ in mixed(device):
            assert await client.ask(asked.command, asked.entity_id, asked.key) == answer


async def test_a_slow_command_of_one_client_does_not_hold_up_another() -> None:
    class Slow(NtfMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def set_cron(self, token_id: bytes, minutes: int, at: int) -> bool:
            self.begun.set()
            await self.go_on.wait()
            return await super().set_cron(token_id, minutes, at)

    store = Slow()
    async with ntf_router(store) as ntf:
        slow, device = await ntf.active_device(), await ntf.active_device()
        asking = asyncio.create_task(slow.ask(SetPeriodicPush(20)))
        await store.begun.wait()
        # Nor a bad command of the same client: it is answered at once (N11).
        assert await device.status() == ACTIVE.status
        store.go_on.set()
        assert await asking == OK


async def test_a_client_that_leaves_at_once_is_obeyed_all_the_same() -> None:
    """What was accepted is executed: the device may not know, and asks again."""
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        leaving = await ntf.connect()
        await leaving.send(Asked(DeleteToken(), device.token_id, device.key))
        await leaving.close()
        ntf.clients.remove(leaving)
        await gone(ntf, device)


async def gone(ntf: NtfHarness, device: Device) -> None:
    async with asyncio.timeout(PATIENCE):
        while await ntf.store.token(device.token_id) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_bytes_that_are_no_block_of_ours_disturb_nobody() -> None:
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        for _ in range(20):
            client = await ntf.connect()
            await client.connection._connection.write_block(os.urandom(512))
            client.connection.abort()
        ntf.clients[1:] = []
        for _ in range(20):
            assert await device.status() == ACTIVE.status
        await until(lambda: len(ntf.running.router.connections) == 1)
