"""The router's port for the job, with clients that mean no good: nothing grows, nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.doubles.pulled_rows import LOOPBACK, pulled_rows
from tests.doubles.smp_harness import until
from tocsin.errors import ConfigError, ConnectionLost
from tocsin.ntf_router.delivery.channels import pull_server
from tocsin.ntf_router.delivery.channels.channel import MOST_BYTES
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.channels.pull_messages import (
    ANSWERS,
    BLOCK,
    MOST_ANSWER,
    HelloPull,
    LookForRows,
    PublishOutcomes,
    PullBusy,
    PullDone,
    ReadRows,
    RowsRead,
    pull_proof,
    receive_message,
    send_message,
)
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.tls_contexts import client_context

HUGE = (1 << 30).to_bytes(4, "big").ljust(BLOCK, b"x")


@asynccontextmanager
async def connected(router: PullChannel, proof: bytes | None = None) -> AsyncIterator[BlockConnection]:
    context = client_context(alpn=(), credentials=None)
    connection = await dial([LOOPBACK], router.port, context=context, block_size=BLOCK, connect_timeout=10)
    try:
        if proof is not None:
            await send_message(connection, HelloPull(proof))
            assert await answer(connection) == PullDone()
        yield connection
    finally:
        connection.abort()


async def answer(connection: BlockConnection) -> object:
    return await receive_message(connection, ANSWERS, MOST_ANSWER)


@pytest.mark.parametrize(
    "first",
    [HelloPull(bytes(32)), HelloPull(b""), LookForRows("", 0, 0.0), PublishOutcomes("key", b"accepted\n")],
)
async def test_who_does_not_show_the_key_gets_nothing(first: HelloPull, tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, _):
        router.begin(b"secret\n")
        async with connected(router) as stranger:
            await send_message(stranger, first)
            with pytest.raises(ConnectionLost):
                await answer(stranger)
        assert router.refused == 1
        assert list(router.take()) == []


async def test_a_huge_frame_and_garbage_end_the_connection_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setattr(pull_server, "HELLO_SECONDS", 1_000.0)
    async with pulled_rows(keys) as (router, _):
        proof = pull_proof(handover_key(keys))
        for known in (None, proof):
            for block in (HUGE, (9).to_bytes(4, "big").ljust(BLOCK, b"\xff"), bytes(BLOCK)):
                async with connected(router, known) as client:
                    await client.write_block(block)
                    async with asyncio.timeout(10):
                        with pytest.raises(ConnectionLost):
                            await client.read_block()
        assert router.refused == 6


async def test_strangers_that_say_nothing_make_place_for_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_server, "MOST_STRANGERS", 3)
    async with pulled_rows(tmp_path / "keys") as (router, job):
        strangers = []
        for _ in range(8):
            context = client_context(alpn=(), credentials=None)
            strangers.append(
                await dial([LOOPBACK], router.port, context=context, block_size=BLOCK, connect_timeout=10)
            )
        await asyncio.to_thread(job.check)
        await until(lambda: len(router._strangers) <= 3)
        for each in strangers:
            each.abort()


async def test_a_slow_reader_is_bounded_and_holds_up_nobody(tmp_path: Path) -> None:
    """It asks for megabytes and reads none of them."""
    keys = tmp_path / "keys"
    async with pulled_rows(keys) as (router, job):
        router.begin(b"begin\n")
        router.publish([b"x" * 900_000 + b"\n"] * 8)
        async with connected(router, pull_proof(handover_key(keys))) as slow:
            request = ReadRows(router._life, 1, 9)
            for _ in range(20):
                await send_message(slow, request)
            slow._stop_reading()
            await until(lambda: router._listener.counts.waiting_bytes > 0)
            for _ in range(20):
                await asyncio.to_thread(job.check)
            assert router._listener.counts.waiting_bytes < 8 << 20


async def test_rows_and_outcomes_that_nobody_takes_are_bounded(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    async with pulled_rows(keys) as (router, _):
        router.begin(b"begin\n")
        megabyte = b"x" * (1 << 20)
        for _ in range((MOST_BYTES >> 20) - 1):
            router.publish([megabyte])
        with pytest.raises(OSError, match="wait for the job already"):
            router.publish([megabyte])
        assert router.kept_bytes <= MOST_BYTES
        async with connected(router, pull_proof(handover_key(keys))) as client:
            for number in range(17):
                await send_message(client, PublishOutcomes(f"key-{number}", megabyte))
                assert await answer(client) == (PullDone() if number < 16 else PullBusy())
            await send_message(client, PublishOutcomes("key-0", megabyte))
            assert await answer(client) == PullDone()  # taken already
        assert len(list(router.take())) == 16


async def test_rows_of_another_life_are_none(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    async with pulled_rows(keys) as (router, _):
        router.begin(b"begin\n")
        async with connected(router, pull_proof(handover_key(keys))) as client:
            await send_message(client, ReadRows("other", 1, 7))
            assert await answer(client) == RowsRead(b"", 8)
            await send_message(client, ReadRows(router._life, 1, 10**12))
            assert await answer(client) == RowsRead(b"begin\n", 10**12 + 1)
            await send_message(client, ReadRows(router._life, 1, 1 << 63))
            with pytest.raises(ConnectionLost):
                await answer(client)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, job):
        assert isinstance(job, PulledRouter)
        port = router._port._replace(port=router.port)
        with pytest.raises(ConfigError, match="cannot serve the deliver job: cannot listen on"):
            async with PullChannel(port).running():
                pass
