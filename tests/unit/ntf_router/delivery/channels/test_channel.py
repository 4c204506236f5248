"""What every channel between a router and the job does, whichever it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.doubles.handover_channels import CHANNELS, met
from tocsin.ntf_router.delivery.channels.channel import SEGMENT_BYTES, JobChannel, RouterChannel, Segment, cut
from tocsin.ntf_router.delivery.channels.router_end import ChannelThread

channels = pytest.mark.parametrize("kind", CHANNELS)


def rows(job: JobChannel, after: str, end: str) -> list[bytes]:
    """In an order of their own: rows have numbers."""
    return sorted(b"".join(lines for _, lines in job.read(after, end)).splitlines())


async def segments(
    job: JobChannel, after: str, enough: Callable[[Sequence[Segment]], bool] = bool
) -> Sequence[Segment]:
    async with asyncio.timeout(30):
        while not enough(found := await asyncio.to_thread(job.new, after)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    return found


async def until_read(job: JobChannel, after: str, wanted: list[bytes]) -> str:
    """Waits until these are the rows after a position. Returns the position after them."""
    async with asyncio.timeout(30):
        while True:
            end = (await segments(job, after))[-1].name
            if await asyncio.to_thread(rows, job, after, end) == wanted:
                return end
            await asyncio.sleep(0.02)


async def taken(router: RouterChannel, count: int) -> list[bytes]:
    """So many outcomes."""
    lines = list[bytes]()
    async with asyncio.timeout(30):
        while len(lines) < count:
            for each in router.take():
                lines += each.splitlines()
            await asyncio.sleep(0.02)
    return lines


@channels
async def test_rows_are_there_again_until_they_are_done(kind: str, tmp_path: Path) -> None:
    async with met(kind, tmp_path) as (router, place, _):
        job = place.channel()
        router.begin(b"begin\n")
        first = await until_read(job, "", [b"begin"])
        router.publish([b"one\n", b"two\n"])
        second = await until_read(job, first, [b"one", b"two"])
        router.publish([b"three\n"])
        third = await until_read(job, second, [b"three"])
        for _ in range(2):
            assert await asyncio.to_thread(rows, job, first, second) == [b"one", b"two"]
            assert await asyncio.to_thread(rows, job, "", third) == [b"begin", b"one", b"three", b"two"]
        parts = [each.name for each in await asyncio.to_thread(job.between, first, third)]
        assert parts[-1] == third
        await asyncio.to_thread(job.done, second)
        assert await asyncio.to_thread(rows, job, second, third) == [b"three"]
        await segments(job, "", lambda found: found[0].name in (second, third))
        assert await asyncio.to_thread(job.new, third) == []


@channels
async def test_what_is_withdrawn_is_gone_for_a_job_that_comes_later(kind: str, tmp_path: Path) -> None:
    async with met(kind, tmp_path) as (router, place, _):
        job = place.channel()
        router.begin(b"begin\n")
        router.publish([b"old\n"])
        before = await until_read(job, "", [b"begin", b"old"])
        router.begin(b"again\n")
        end = await until_read(job, before, [b"again"])
        assert end != before
        if kind != "kafka":  # which keeps everything: a batch that was planned before has the same rows again
            assert await asyncio.to_thread(rows, job, "", before) == []
        assert await asyncio.to_thread(rows, job, "", end) == [b"again"]


@channels
async def test_outcomes_come_whole_and_in_their_order(kind: str, tmp_path: Path) -> None:
    async with met(kind, tmp_path) as (router, place, _):
        job = place.channel()
        router.begin(b"begin\n")
        await until_read(job, "", [b"begin"])
        for number in range(4):
            await asyncio.to_thread(job.publish, f"stream-{number:012d}", b"%d a\n%d b\n" % (number, number))
        found = await taken(router, 8)
        assert found == [b"%d %s" % (number, each) for number in range(4) for each in (b"a", b"b")]
        await asyncio.to_thread(job.publish, "stream-000000000003", b"3 a\n")  # the batch ran again
        assert await taken(router, 1) == [b"3 a"]


def test_segments_are_cut_between_rows() -> None:
    half = b"x" * (SEGMENT_BYTES // 2) + b"\n"
    assert [len(each) for each in cut([half] * 3 + [half * 4, b"end\n"])] == [
        len(half),
        len(half),
        len(half),
        4 * len(half),
        4,
    ]
    assert list(cut([])) == []


async def test_rows_wait_a_moment_to_share_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object storage has a price for each."""
    waiting, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait(_self: ChannelThread, _seconds: float) -> None:
        loop.call_soon_threadsafe(waiting.set)
        goes_on.wait(30)

    monkeypatch.setattr(ChannelThread, "wait", wait)
    async with met("storage", tmp_path) as (router, place, _):
        router.publish([b"one\n"])
        async with asyncio.timeout(10):
            await waiting.wait()
        router.publish([b"two\n"])
        goes_on.set()
        job = place.channel()
        await until_read(job, "", [b"one", b"two"])
        assert len(await segments(job, "")) == 1
