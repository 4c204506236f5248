"""The pull from both ends: rows from a position, replay, outcomes, and routers that are gone, other or restarted."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from tests.doubles.pulled_rows import another_key, pull_channel, pulled_rows
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import until
from tocsin.errors import ConfigError, ConnectFailed
from tocsin.ntf_router.delivery.channels.channel import SEGMENT_BYTES, Segment
from tocsin.ntf_router.delivery.channels.pull_client import Position, PulledRouter


def rows(job: PulledRouter, after: str, end: str) -> list[bytes]:
    return b"".join(lines for _, lines in job.read(after, end)).splitlines()


async def segments(job: PulledRouter, number: int, after: str = "") -> list[Segment]:
    """Waits for so many."""
    async with asyncio.timeout(20):
        while len(found := list(await asyncio.to_thread(job.new, after))) != number:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return found


async def test_rows_are_read_from_a_position_and_again_until_they_are_done(tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, job):
        router.begin(b"begin\n")
        router.publish([b"one\n", b"two\n"])
        found = await segments(job, 2)
        assert [each.size for each in found] == [6, 8]
        last = found[-1].name
        for _ in range(2):
            assert await asyncio.to_thread(rows, job, "", last) == [b"begin", b"one", b"two"]
        router.publish([b"three\n"])
        [third] = await segments(job, 1, last)
        assert await asyncio.to_thread(rows, job, last, third.name) == [b"three"]
        assert job.between("", third.name) == [*found, third]
        job.done(last)
        await until(lambda: router.kept_bytes == len(b"three\n"))
        assert [each.name for each in await segments(job, 1)] == [third.name]
        assert await asyncio.to_thread(rows, job, last, third.name) == [b"three"]


async def test_a_process_that_does_not_know_the_segments_reads_the_same_rows(tmp_path: Path) -> None:
    """An executor, or a driver that was killed and plans its batch again."""
    async with pulled_rows(tmp_path / "keys") as (router, job):
        router.begin(b"begin\n")
        router.publish([b"x" * 400_000 + b"\n"] * 30)
        found = await segments(job, 16)
        assert all(each.size <= SEGMENT_BYTES for each in found)
        other = pickle.loads(  # noqa: S301 - it was made here
            pickle.dumps(PulledRouter("localhost", job.port, job.fingerprint, job.keys))
        )
        assert other.between("", found[-1].name) == [Segment(found[-1].name, 0)]
        read = await asyncio.to_thread(lambda: list(other.read("", found[-1].name)))
        assert len(read) > 2  # in parts of bounded size
        assert len(b"".join(lines for _, lines in read).splitlines()) == 31


async def test_withdrawn_rows_are_missing_and_new_ones_have_another_position(tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, job):
        router.begin(b"begin\n")
        router.publish([b"old\n"])
        before = (await segments(job, 2))[-1].name
        router.begin(b"again\n")
        [new] = await segments(job, 1, before)
        assert Position.parse(new.name).life != Position.parse(before).life
        assert await asyncio.to_thread(rows, job, "", before) == []
        assert await asyncio.to_thread(rows, job, before, new.name) == [b"again"]


async def test_outcomes_reach_the_router_once_and_whole(tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, job):
        router.begin(b"begin\n")
        await asyncio.to_thread(job.publish, "batch-1", b"one\ntwo\n")
        await asyncio.to_thread(job.publish, "batch-1", b"one\ntwo\n")  # the batch ran again
        assert list(router.take()) == [b"one\ntwo\n"] * 2
        many = [b"x" * 900_000 + b"\n"] * 12
        await asyncio.to_thread(job.publish, "batch-2", b"".join(many))
        taken = list[bytes]()
        async with asyncio.timeout(20):
            while len(b"".join(taken).splitlines()) < 12:
                taken += router.take()
                await asyncio.sleep(0.01)
        assert all(part.endswith(b"\n") for part in taken)


async def test_a_router_that_restarts_is_found_again_and_gets_what_it_missed(tmp_path: Path) -> None:
    credentials, keys = make_credentials(), tmp_path / "keys"
    first = pull_channel(credentials, keys)
    async with first.running():
        job = PulledRouter("127.0.0.1", first.port, credentials.fingerprint, keys)
        first.begin(b"begin\n")
        [before] = await segments(job, 1)
        await asyncio.to_thread(job.publish, "batch-1", b"taken\n")
        assert list(first.take()) == [b"taken\n"]
    await asyncio.to_thread(job.publish, "batch-2", b"missed\n")
    assert await asyncio.to_thread(rows, job, "", before.name) == []
    second = pull_channel(credentials, keys, job.port)
    async with second.running():
        second.begin(b"again\n")
        [new] = await segments(job, 1, before.name)
        assert await asyncio.to_thread(rows, job, before.name, new.name) == [b"again"]
        await until(lambda: second.outcome_bytes > 0)
        assert list(second.take()) == [b"missed\n"]


async def test_another_key_or_router_is_refused_and_named(tmp_path: Path) -> None:
    async with pulled_rows(tmp_path / "keys") as (router, job):
        await asyncio.to_thread(job.check)
        stranger = PulledRouter(job.host, job.port, job.fingerprint, another_key(tmp_path / "other"))
        with pytest.raises(ConfigError, match="did not accept the key of the hand-over"):
            await asyncio.to_thread(stranger.check)
        assert router.refused == 1
        wrong = PulledRouter(job.host, job.port, bytes(32), job.keys)
        with pytest.raises(ConfigError, match="is not the router of the address"):
            await asyncio.to_thread(wrong.check)
    with pytest.raises(ConnectFailed):
        await asyncio.to_thread(PulledRouter(job.host, 1, job.fingerprint, job.keys).check)
