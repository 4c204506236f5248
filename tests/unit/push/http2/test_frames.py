"""Whatever a server sends, a connection goes on or is lost. Header blocks of requests share what is alike."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.push.http2.connection import Http2Connection, Http2Limits
from tocsin.push.http2.frames import FrameReader, OwnHeader, RequestBlocks, SharedHeaders
from tocsin.push.http2.hpack import Decoder, Header


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


def shared(kind: bytes, authorization: bytes = b"bearer x") -> SharedHeaders:
    return SharedHeaders(
        (
            (b":authority", b"api.example.com", False),
            (b":scheme", b"https", False),
            (b":method", b"POST", False),
        ),
        (
            (b"apns-topic", b"app", False),
            (b"apns-push-type", kind, False),
            (b"authorization", authorization, False),
        ),
    )


ID, EXPIRATION = OwnHeader(b"apns-id"), OwnHeader(b"apns-expiration")


def expected(
    headers: SharedHeaders, path: bytes, own: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    return [
        *((name, value) for name, value, _ in headers.before_path),
        (b":path", path),
        *((name, value) for name, value, _ in headers.after_path),
        *own,
    ]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_sent_between_them_requests_are_read_as_they_were_meant(seed: int) -> None:
    """By a decoder that sees all of a connection's blocks: an old reference would name another header."""
    chance = random.Random(seed)
    blocks, decoder = RequestBlocks(), Decoder(1 << 16)
    kinds = [shared(b"alert"), shared(b"background")]
    for number in range(400):
        if chance.random() < 0.05:
            kinds[chance.randrange(2)] = shared(
                chance.choice([b"alert", b"background"]), b"bearer %d" % number
            )
        if chance.random() < 0.05:
            other: list[Header] = [(b":method", b"GET", False), (b"x-%d" % number, b"y" * 50, False)]
            found = decoder.decode(blocks.encode(other))
            assert [(name, value) for name, value, _ in found] == [(n, v) for n, v, _ in other]
        if chance.random() < 0.02:
            blocks.change_table_size(chance.choice([512, 1024, 4096]))
        headers = chance.choice(kinds)
        path = b"/3/device/" + os.urandom(chance.choice([2, 32, 100, 300])).hex().encode()
        values = b"1" * chance.choice([36, 126, 127, 300]), b"%d" % number
        own = ID.encode(values[0]) + EXPIRATION.encode(values[1])
        found = decoder.decode(blocks.encode_request(headers, path, own))
        named = list(zip((ID.name, EXPIRATION.name), values, strict=True))
        assert [(name, value) for name, value, _ in found] == expected(headers, path, named)


def test_what_is_the_same_is_sent_as_references() -> None:
    blocks, headers = RequestBlocks(), shared(b"alert")
    sizes = [len(blocks.encode_request(headers, b"/p", ID.encode(b"1"))) for _ in range(3)]
    assert sizes[0] > sizes[1] == sizes[2]
    assert sizes[2] == 6 + 4 + 1 + 8 + 2


def test_a_requests_own_headers_are_never_indexed() -> None:
    """Device tokens must not stay in any table on the way."""
    decoder = Decoder(1 << 16)
    block = RequestBlocks().encode_request(shared(b"alert"), b"/secret", ID.encode(b"1"))
    never = {name for name, _, sensitive in decoder.decode(block) if sensitive}
    assert never == {b":path", b"apns-id"}
