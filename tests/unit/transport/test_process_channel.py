"""Frames arrive whole and in order, however the system cuts them; what is no frame ends the channel."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.smp_harness import until
from tocsin.errors import DecodeError
from tocsin.transport.process_channel import MOST_BYTES, Channel, ChannelEnd


class Frame(NamedTuple):
    kind: int
    number: int
    content: bytes


def encoded(frame: Frame) -> bytes:
    size = len(frame.content)
    return bytes((frame.kind,)) + frame.number.to_bytes(8, "big") + size.to_bytes(4, "big") + frame.content


class End:
    """One end of a channel, and what came out of it."""

    def __init__(self, sock: socket.socket) -> None:
        self.frames: list[Frame] = []
        self.ends = 0
        self.channel = Channel(ChannelEnd(sock), self._take, self._end)

    def _take(self, *frame: Any) -> None:
        if not frame[0]:
            raise DecodeError("a frame of no kind")
        self.frames.append(Frame(*frame))

    def _end(self) -> None:
        self.ends += 1


def ends() -> tuple[End, End]:
    first, second = socket.socketpair()
    return End(first), End(second)


sizes = st.one_of(st.integers(0, 3000), st.integers(15_000, 17_000), st.just(MOST_BYTES))
frames = st.builds(
    Frame,
    st.integers(1, 255),
    st.integers(0, 2**64 - 1),
    st.builds(lambda size, byte: bytes((byte,)) * size, sizes, st.integers(0, 255)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(frames, max_size=40), max_size=4), st.lists(frames, max_size=5))
def test_frames_arrive_whole_and_in_order(turns: list[list[Frame]], back: list[Frame]) -> None:
    async def run() -> None:
        first, second = ends()
        for sent in turns:
            for frame in sent:
                first.channel.send(*frame)
            await asyncio.sleep(0)
        for frame in back:
            second.channel.send(*frame)
        expected = [frame for sent in turns for frame in sent]
        await until(lambda: len(second.frames) == len(expected) and len(first.frames) == len(back))
        assert (second.frames, first.frames) == (expected, back)
        assert first.channel.waiting_bytes == second.channel.waiting_bytes == 0
        first.channel.close()
        await until(lambda: second.ends == 1)
        assert first.ends == 0

    asyncio.run(run())


@settings(max_examples=40, deadline=None)
@given(st.lists(frames, min_size=1, max_size=6), st.lists(st.integers(1, 5000), max_size=30))
def test_frames_may_arrive_in_any_pieces(sent: list[Frame], pieces: list[int]) -> None:
    async def run() -> None:
        theirs, ours = socket.socketpair()
        collected = b"".join(encoded(frame) for frame in sent)
        end = End(ours)
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        start = 0
        for size in [*pieces, len(collected)]:
            await loop.sock_sendall(theirs, collected[start : start + size])
            start += size
            await asyncio.sleep(0)
        await until(lambda: len(end.frames) == len(sent))
        assert end.frames == sent
        end.channel.close()
        theirs.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00" + bytes(12), id="no kind"),
        pytest.param(b"\x16" + bytes(8) + (MOST_BYTES + 1).to_bytes(4, "big"), id="too long"),
    ],
)
async def test_what_is_no_frame_ends_the_channel(data: bytes) -> None:
    theirs, ours = socket.socketpair()
    end = End(ours)
    theirs.sendall(data)
    await until(lambda: end.ends == 1)
    assert end.frames == []
    end.channel.send(4, 1, b"dropped")
    end.channel.close()
    theirs.close()


async def test_what_the_other_end_does_not_take_waits_and_is_counted() -> None:
    theirs, ours = socket.socketpair()
    end, content = End(ours), bytes(16_384)
    for _ in range(500):
        end.channel.send(4, 7, content)
    end.channel.flush()
    assert end.channel.waiting_bytes > 1_000_000
    reader = End(theirs)
    await until(lambda: len(reader.frames) == 500)
    assert end.channel.waiting_bytes == 0
    assert {frame.content for frame in reader.frames} == {content}
    for each in (end, reader):
        each.channel.close()
