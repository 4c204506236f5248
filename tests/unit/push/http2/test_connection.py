"""One HTTP/2 connection and servers that do not behave. Frames are written by hand: ours must not test themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.unit.push.stage import PAYLOAD
from tocsin.push.fake.behaviours import Behaviour, Hold, SendRaw
from tocsin.push.fake.server import FakeApns
from tocsin.push.http2.connection import Http2Connection, Http2Limits, HttpsServer
from tocsin.push.http2.hpack import Encoder, Header
from tocsin.push.http2.push_provider import tls_context
from tocsin.push.http2.streams import MAX_BODY_BYTES, Failure, Http2Answer, Result, Unanswered, Unprocessed

REQUEST: Final[Sequence[Header]] = [
    (b":authority", b"localhost", False),
    (b":scheme", b"https", False),
    (b":method", b"POST", False),
    (b":path", b"/3/device/abcd", True),
    (b"apns-topic", b"chat.simplex.app", False),
    (b"apns-push-type", b"alert", False),
]
STATUS_200: Final = b"\x88"
QUICK: Final = Http2Limits(connect=5, request=5, watch=0.01)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"", size: int | None = None) -> bytes:
    length = len(payload) if size is None else size
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
ACCEPTED: Final = frame(HEADERS, END_STREAM | END_HEADERS, 1, STATUS_200)


@asynccontextmanager
async def connected(apns: FakeApns, limits: Http2Limits = QUICK) -> AsyncIterator[Http2Connection]:
    connection = await Http2Connection.connect(
        HttpsServer(apns.host, apns.port, tls_context(apns.ca_file)), limits
    )
    try:
        yield connection
    finally:
        await connection.drain(0)


async def exchange(apns: FakeApns, behaviour: Behaviour) -> tuple[Result, str | None]:
    """The result of one request and why the connection was lost, if it was."""
    apns.behave(behaviour)
    async with connected(apns) as connection:
        result = await connection.send(REQUEST, PAYLOAD)
        return result, connection.lost


BREACHES: Final = {
    "a frame too large": frame(DATA, 0, 1, size=16_385),
    "headers of stream 0": frame(HEADERS, END_HEADERS, 0, STATUS_200),
    "data of stream 0": frame(DATA, 0, 0),
    "a reset of stream 0": frame(RESET, 0, 0, bytes(4)),
    "a reset that is too short": frame(RESET, 0, 1, bytes(3)),
    "an answer to what nobody asked": frame(HEADERS, END_HEADERS, 3, STATUS_200),
    "data for what nobody asked": frame(DATA, 0, 3),
    "a reset of what nobody asked": frame(RESET, 0, 3, bytes(4)),
    "a stream of the server": frame(HEADERS, END_HEADERS, 2, STATUS_200),
    "a promise": frame(PROMISE, END_HEADERS, 1, bytes(4) + STATUS_200),
    "settings of a stream": frame(SETTINGS, 0, 1),
    "settings cut off": frame(SETTINGS, 0, 0, bytes(5)),
    "an acknowledgement with content": frame(SETTINGS, 1, 0, bytes(6)),
    "a frame limit that is too low": frame(SETTINGS, 0, 0, b"\0\5\0\0\0\1"),
    "a frame limit that is too high": frame(SETTINGS, 0, 0, b"\0\5\1\0\0\0"),
    "an initial window too wide": frame(SETTINGS, 0, 0, b"\0\4\x80\0\0\0"),
    "a window that grows by nothing": frame(WINDOW, 0, 0, bytes(4)),
    "a window of the connection too wide": frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
    "a window of a stream too wide": frame(WINDOW, 0, 1, b"\x7f\xff\xff\xff"),
    "a window of a stream too wide by settings": frame(WINDOW, 0, 1, b"\x70\0\0\0")
    + frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff"),
    "a PING of 7 bytes": frame(PING, 0, 0, bytes(7)),
    "a PING of a stream": frame(PING, 0, 1, bytes(8)),
    "a GOAWAY too short": frame(GOAWAY, 0, 0, bytes(3)),
    "a continuation of nothing": frame(CONTINUATION, END_HEADERS, 1, STATUS_200),
    "a continuation of another stream": frame(HEADERS, 0, 1)
    + frame(CONTINUATION, END_HEADERS, 3, STATUS_200),
    "something inside a header block": frame(HEADERS, 0, 1) + frame(PING, 0, 0, bytes(8)),
    "more padding than frame": frame(DATA, PADDED, 1, b"\x05abc"),
    "padding without a length": frame(HEADERS, PADDED | END_HEADERS, 1),
    "headers too short for a priority": frame(HEADERS, 0x20 | END_HEADERS, 1, bytes(4)),
    "headers that cannot be decompressed": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    "a header block without end": frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, bytes(16_000)) * 3,
    "empty continuations without end": frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 20,
}


@pytest.mark.parametrize("raw", BREACHES.values(), ids=BREACHES)
async def test_a_server_that_breaks_the_rules_loses_the_connection(apns: FakeApns, raw: bytes) -> None:
    result, lost = await exchange(apns, SendRaw(raw))
    assert isinstance(result, Unanswered)
    assert result.failure is Failure.CONNECTION
    assert "broke HTTP/2" in str(lost)


async def test_the_server_is_told_that_it_broke_the_rules(apns: FakeApns) -> None:
    apns.behave(SendRaw(BREACHES["a PING of 7 bytes"]))
    async with connected(apns) as connection:
        [session] = apns.sessions
        await connection.send(REQUEST, PAYLOAD)
        await session.ended
        assert session.goodbye == 1


async def test_a_header_bomb_is_not_unpacked(apns: FakeApns) -> None:
    """One header of 4 kB in the compression's table, then a thousand references to it of one byte each."""
    encoder = Encoder()
    bomb = encoder.encode([(b"x", b"a" * 4000, False)]) + encoder.encode([(b"x", b"a" * 4000, False)] * 1000)
    result, lost = await exchange(apns, SendRaw(frame(HEADERS, END_HEADERS, 1, bomb)))
    assert isinstance(result, Unanswered)
    assert "headers that cannot be decompressed" in str(lost)


@pytest.mark.parametrize(
    "flood",
    [
        frame(PING, 0, 0, bytes(8)),
        frame(SETTINGS, 0, 0),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(DATA, 0, 1),
        frame(RESET, 0, 1, bytes(4)),
        frame(WINDOW, 0, 0, b"\0\0\0\1"),
        frame(99, 0, 1),
    ],
    ids=["PING", "SETTINGS", "PRIORITY", "empty DATA", "RST_STREAM", "WINDOW_UPDATE", "unknown"],
)
async def test_a_flood_of_frames_that_say_nothing_ends_the_connection(apns: FakeApns, flood: bytes) -> None:
    apns.behave(SendRaw(frame(HEADERS, END_HEADERS, 1, STATUS_200) + flood * 10_001))
    apns.behave(Hold())
    async with connected(apns, Http2Limits(watch=600)) as connection:
        results = await asyncio.gather(connection.send(REQUEST, PAYLOAD), connection.send(REQUEST, PAYLOAD))
        assert isinstance(results[1], Unanswered)
        assert connection.lost == "localhost floods us with frames"


async def test_a_server_that_does_not_read_loses_the_connection(
    apns: FakeApns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grants windows and streams without end, but takes nothing."""
    monkeypatch.setattr("tocsin.transport.tls_stream.MAX_UNSENT_BYTES", 1_000_000)
    apns.change_settings({3: 1000, 4: 1_000_000})
    async with connected(apns) as connection:
        [session] = apns.sessions
        session.stop_reading()
        session.send_raw(frame(WINDOW, 0, 0, b"\x7f\0\0\0"))
        results = [connection.send(REQUEST, bytes(60_000)) for _ in range(200)]
        [*_, last] = await asyncio.gather(*results)
        assert last == Unanswered(Failure.CONNECTION, "the peer does not read")
        session.abort()


async def test_frames_that_mean_nothing_to_us_are_ignored(apns: FakeApns) -> None:
    raw = b"".join(
        [
            frame(99, 0xFF, 7, b"of a later version"),
            frame(PRIORITY, 0, 1, bytes(5)),
            frame(SETTINGS, 0, 0, b"\0\x63\0\0\0\1"),
            frame(HEADERS, END_HEADERS, 1, b"\x08\x03103"),  # early hints
            frame(HEADERS, END_HEADERS, 1, STATUS_200),
            frame(DATA, PADDED, 1, b"\x03" + b"body" + bytes(3)),
            frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x40\x01x\x01y"),  # after the body
            frame(DATA, END_STREAM, 1, b"too late"),
            frame(RESET, 0, 1, bytes(4)),
            frame(WINDOW, 0, 1, b"\0\0\0\1"),
        ]
    )
    apns.behave(SendRaw(raw))
    async with connected(apns) as connection:
        assert await connection.send(REQUEST, PAYLOAD) == Http2Answer(200, {b":status": b"200"}, b"body")
        assert await connection.send(REQUEST, PAYLOAD) == Http2Answer(200, {b":status": b"200"}, b"")


async def test_a_header_block_in_parts_is_put_together(apns: FakeApns) -> None:
    raw = frame(HEADERS, END_STREAM, 1) + frame(CONTINUATION, 0, 1) + frame(CONTINUATION, 4, 1, STATUS_200)
    result, _ = await exchange(apns, SendRaw(raw))
    assert result == Http2Answer(200, {b":status": b"200"}, b"")


@pytest.mark.parametrize(
    "raw",
    [
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x40\x01x\x01y"),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x08\x03abc"),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x08\x03099"),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x08\x03100"),
        frame(DATA, END_STREAM, 1, b"body"),
    ],
    ids=["no status", "not a number", "below 100", "only 100", "a body first"],
)
async def test_an_answer_that_is_none_concerns_its_stream_only(apns: FakeApns, raw: bytes) -> None:
    apns.behave(Hold())
    apns.behave(SendRaw(raw.replace(b"\0\0\0\1", b"\0\0\0\3", 1)))
    async with connected(apns) as connection:
        held = connection.send(REQUEST, PAYLOAD)
        result = await connection.send(REQUEST, PAYLOAD)
        assert isinstance(result, Unanswered)
        assert result.failure is Failure.RESET
        apns.release()
        assert isinstance(await held, Http2Answer)


async def test_an_answer_without_end_is_cut_off(apns: FakeApns) -> None:
    raw = frame(HEADERS, END_HEADERS, 1, STATUS_200) + frame(DATA, 0, 1, bytes(16_384)) * 3
    result, lost = await exchange(apns, SendRaw(raw))
    assert isinstance(result, Http2Answer)
    assert len(result.body) == MAX_BODY_BYTES
    assert lost is None


async def test_received_data_is_given_back_to_the_window(apns: FakeApns) -> None:
    """A server can send more than the window of the connection in its life, here in answers of 16 kB."""
    async with connected(apns) as connection:
        for number in range(80):
            stream_id = 2 * number + 1
            body = frame(DATA, END_STREAM, stream_id, bytes(16_384))
            apns.behave(SendRaw(frame(HEADERS, END_HEADERS, stream_id, STATUS_200) + body))
            assert isinstance(await connection.send(REQUEST, PAYLOAD), Http2Answer)
        [session] = apns.sessions
        await apns.until(lambda: session.window_to_client > 1_048_575 + 500_000)


async def test_a_silent_connection_is_probed_and_kept_if_it_answers(apns: FakeApns) -> None:
    async with connected(apns, Http2Limits(ping_after=0, watch=0.001)) as connection:
        [session] = apns.sessions
        await apns.until(lambda: session.pings > 3)
        assert connection.lost is None
        assert isinstance(await connection.send(REQUEST, PAYLOAD), Http2Answer)


@pytest.mark.parametrize("limits", [Http2Limits(ping_after=0, ping_answer=0, watch=0.001)])
async def test_a_connection_that_does_not_answer_ping_is_lost(apns: FakeApns, limits: Http2Limits) -> None:
    async with connected(apns, limits) as connection:
        apns.sessions[0].deaf = True
        await apns.until(lambda: not apns.sessions)
        assert connection.lost == "localhost does not answer PING"
        assert await connection.send(REQUEST, PAYLOAD) == Unprocessed("localhost does not answer PING")


async def test_a_connection_on_which_answers_are_awaited_is_probed_sooner(apns: FakeApns) -> None:
    limits = Http2Limits(ping_after=600, ping_after_when_busy=0, ping_answer=0, watch=0.001)
    apns.behave(Hold())
    async with connected(apns, limits) as connection:
        apns.sessions[0].deaf = True
        result = await connection.send(REQUEST, PAYLOAD)
        assert result == Unanswered(Failure.CONNECTION, "localhost does not answer PING")


async def test_a_request_beyond_the_room_is_not_sent(apns: FakeApns) -> None:
    apns.change_settings({3: 1})
    apns.behave(Hold())
    async with connected(apns) as connection:
        held = connection.send(REQUEST, PAYLOAD)
        assert await connection.send(REQUEST, PAYLOAD) == Unprocessed("no room")
        await apns.next_request()
        apns.change_settings({3: 0})
        await apns.until(lambda: connection.room == 0)
        apns.release()
        await held
        assert connection.room == 0


async def test_a_connection_that_allows_no_stream_is_given_up(apns: FakeApns) -> None:
    apns.change_settings({3: 0})
    async with connected(apns, Http2Limits(request=0, watch=0.001)) as connection:
        await apns.until(lambda: not apns.sessions)
        assert connection.lost == "retired"


async def test_stream_numbers_end_and_with_them_the_connection(apns: FakeApns) -> None:
    async with connected(apns) as connection:
        connection._streams.next_id = (1 << 31) - 1001
        assert isinstance(await connection.send(REQUEST, PAYLOAD), Http2Answer)
        assert connection.room == 0
        assert connection.lost == "drained"


async def test_an_answer_before_the_end_of_the_request_is_one(apns: FakeApns) -> None:
    apns.change_settings({4: 0})
    async with connected(apns) as connection:
        answer = connection.send(REQUEST, PAYLOAD)
        [session] = apns.sessions
        await apns.until(lambda: session.streams)
        session.send_raw(ACCEPTED)
        assert await answer == Http2Answer(200, {b":status": b"200"}, b"")
        await apns.until(lambda: not session.streams)  # reset, since the rest of the request is not wanted


async def test_a_request_without_a_body_ends_with_its_headers(apns: FakeApns) -> None:
    async with connected(apns) as connection:
        result = await connection.send(REQUEST, b"")
        assert isinstance(result, Http2Answer)
        assert result.body == b'{"reason": "PayloadEmpty"}'


async def test_a_smaller_compression_table_is_respected(apns: FakeApns) -> None:
    apns.change_settings({1: 0})
    async with connected(apns) as connection:
        for _ in range(3):
            assert isinstance(await connection.send(REQUEST, PAYLOAD), Http2Answer)
        assert apns.sessions[0].header_table_bytes == 0
