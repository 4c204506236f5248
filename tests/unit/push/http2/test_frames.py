"""Whatever a server sends, a connection either goes on or is lost; nothing is raised and no request is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.push.http2.connection import Http2Connection
from tocsin.push.http2.exchange import Http2Limits
from tocsin.push.http2.frames import FrameReader


class Wire:
    """A `TlsStream` that goes nowhere."""

    def __init__(self) -> None:
        self.written = 0
        self.on_data: Callable[[bytes], bool | None] = lambda _data: None
        self.on_lost: Callable[[str], None] | None = None

    def start(self, on_data: Callable[[bytes], bool | None], on_lost: Callable[[str], None]) -> None:
        self.on_data, self.on_lost = on_data, on_lost

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def write_pieces(self, pieces: Iterable[bytes], size: int) -> None:
        assert sum(map(len, pieces)) == size
        self.written += size

    def flush(self) -> None:
        pass

    def close(self, reason: str) -> None:
        if self.on_lost is not None:
            on_lost, self.on_lost = self.on_lost, None
            on_lost(reason)


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


HEADER_BLOCKS = st.sampled_from([b"\x88", b"\x8d", b"\x08\x03410", b"\x08\x03100", b"\x3f\xe1\x1f"])
NUMBERS = st.integers(0, 2**32 - 1).map(lambda number: number.to_bytes(4, "big"))
SETTINGS = st.lists(st.tuples(st.integers(0, 7), NUMBERS), max_size=3).map(
    lambda settings: b"".join(number.to_bytes(2, "big") + value for number, value in settings)
)
PAYLOADS = st.one_of(HEADER_BLOCKS, NUMBERS, SETTINGS, st.binary(max_size=40))
FRAMES = st.builds(frame, st.integers(0, 10), st.integers(0, 255), st.integers(0, 9), PAYLOADS)
LIKELY_FRAMES = st.one_of(
    st.builds(frame, st.just(1), st.sampled_from([4, 5, 0]), st.sampled_from([1, 3, 5]), HEADER_BLOCKS),
    st.builds(frame, st.just(0), st.sampled_from([0, 1]), st.sampled_from([1, 3, 5]), st.binary(max_size=9)),
    st.builds(frame, st.just(3), st.just(0), st.sampled_from([1, 3, 5]), NUMBERS),
    st.builds(frame, st.just(4), st.just(0), st.just(0), SETTINGS),
    st.builds(frame, st.just(8), st.just(0), st.sampled_from([0, 1, 3, 5]), NUMBERS),
    st.builds(frame, st.just(7), st.just(0), st.just(0), NUMBERS),
)


@example([frame(1, 4, 1, b"\x07")], True)  # the decoder panics
@given(st.lists(st.one_of(FRAMES, LIKELY_FRAMES), max_size=12), st.booleans())
def test_any_frames_leave_a_connection_that_works_or_is_lost(frames: list[bytes], greeted: bool) -> None:
    async def converse() -> None:
        wire = Wire()
        connection = Http2Connection(wire, "server", Http2Limits(), lambda: None)
        connection._start()
        if greeted:
            wire.on_data(frame(4, 0, 0, b""))
        answers = [connection.send([(b":path", b"/", True)], bytes(30_000)) for _ in range(3)]
        for each in frames:
            if connection.lost is None:
                wire.on_data(each)
                await asyncio.sleep(0)  # answers are told in the next turn of the loop
                assert connection.streams == sum(not answer.done() for answer in answers)
        connection.close("the end")
        await asyncio.sleep(0)
        assert all(answer.done() for answer in answers)
        assert wire.written <= 3 * 31_000 + 100 * (len(frames) + 2)

    asyncio.run(converse())


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_frames_are_the_same_however_they_are_cut(payloads: list[bytes], size: int) -> None:
    whole = b"".join(frame(1, 4, number, payload) for number, payload in enumerate(payloads))
    reader = FrameReader()
    parts = [whole[at : at + size] for at in range(0, len(whole), size)]
    read = [each for part in parts for each in reader.feed(part)]
    assert [(each.stream_id, each.payload) for each in read] == list(enumerate(payloads))
