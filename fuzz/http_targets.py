"""Answers of push services: HTTP/2 frames, HTTP/1.1 answers, and their meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Final

from fuzz.contract import attempt, choose, demand, demand_equal
from tocsin.errors import DecodeError
from tocsin.push.apns.outcome import apns_outcome
from tocsin.push.fcm.access_tokens import AccessToken, token_of
from tocsin.push.fcm.outcome import fcm_outcome
from tocsin.push.http2.connection import Http2Connection, Http2Limits
from tocsin.push.http2.frames import encode_settings
from tocsin.push.http2.streams import MAX_BODY_BYTES, Http2Answer, Result
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, TokenInvalid
from tocsin.push.webpush.http1_connection import MAX_HEAD_BYTES, AnswerReader, Http1Answer
from tocsin.push.webpush.outcome import web_push_outcome

REQUESTS: Final = 3
HEADERS: Final = ((b":method", b"POST", False), (b":path", b"/3/device/ab", False))
_LIMITS: Final = Http2Limits(watch=3600.0)
_MOST_NAME: Final = 64
_NOW: Final = 1_700_000_000.0


class _Wire:
    """In place of a TLS stream: what is written goes nowhere, and closing is reported as the real one does."""

    def __init__(self) -> None:
        self.closed = False
        self._on_data: Callable[[bytes], bool | None] | None = None
        self._on_lost: Callable[[str], None] | None = None

    def start(self, on_data: Callable[[bytes], bool | None], on_lost: Callable[[str], None]) -> None:
        self._on_data, self._on_lost = on_data, on_lost

    def arrive(self, data: bytes) -> None:
        if not self.closed and self._on_data is not None:
            self._on_data(data)

    def write(self, data: bytes) -> None:
        demand(bool(data), "nothing empty is sent")

    def write_pieces(self, pieces: Iterable[bytes], size: int) -> None:
        demand_equal(sum(map(len, pieces)), size, "pieces have the size that is said")

    def flush(self) -> None:
        """Nothing to do."""

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            if self._on_lost is not None:
                self._on_lost(reason)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def http2_frames(data: bytes) -> None:
    """Whatever a service sends: every request gets exactly one result, at the latest when the connection ends."""
    size, data = choose(data, (1, 7, 64, 1 << 20))
    parts = [data[at : at + size] for at in range(0, len(data), size)][:2000]
    for begun in (parts, [encode_settings({}), *parts]):
        results = _loop().run_until_complete(_answered(begun))
        demand_equal(len(results), REQUESTS, "every request gets one result")
        for result in results:
            if isinstance(result, Http2Answer):
                demand(len(result.body) <= MAX_BODY_BYTES, "a body is bounded")
                demand(200 <= result.status <= 999, "an interim answer is no result")
                _sane(apns_outcome(result))


async def _answered(parts: Sequence[bytes]) -> list[Result]:
    wire = _Wire()
    connection = Http2Connection(wire, "service", _LIMITS, lambda: None)
    connection._start()
    waiting = [connection.send(HEADERS, b"body of a push") for _ in range(REQUESTS)]
    for part in parts:
        wire.arrive(part)
    connection.close("the end")
    results = [await each for each in waiting]
    demand(connection.lost is not None, "a closed connection is lost")
    demand(connection.room == 0, "a lost connection takes no requests")
    return results


def http1_answer(data: bytes) -> None:
    """The same bytes in other pieces give the same answer, and what is kept of them is bounded."""
    at_once = _read([data])
    for size in (1, 5, 100):
        in_pieces = _read([data[at : at + size] for at in range(0, len(data), size)])
        if at_once is not None and in_pieces is not None:
            demand_equal(in_pieces, at_once, "an answer does not depend on how its bytes arrive")
    if at_once is not None:
        _sane(web_push_outcome(at_once.status, at_once.retry_after))


def _read(parts: Sequence[bytes]) -> Http1Answer | None:
    reader = AnswerReader()
    for part in parts:
        if reader.complete:
            break
        if attempt(partial(_fed, reader, part), DecodeError) is None:
            return None
        demand(len(reader._data) <= MAX_HEAD_BYTES + len(part), "what waits to be read is bounded")
    return reader.answer


def _fed(reader: AnswerReader, part: bytes) -> bool:
    reader.feed(part)
    return True


def meaning(data: bytes) -> None:
    """The JSON of an answer from Apple or Google, and the header that says when to come back."""
    status, data = choose(data, (400, 403, 404, 410, 413, 429, 500, 503, 200, 301))
    retry_after, _, body = data.partition(b"\n")
    answer = Http2Answer(status, {b"retry-after": retry_after}, body)
    _sane(apns_outcome(answer))
    _sane(fcm_outcome(answer))
    token = token_of(answer, _NOW)
    if isinstance(token, AccessToken):
        demand(_NOW < token.renew_at < token.expires_at, "a token is renewed before its end")
        demand(b"\n" not in token.authorization and b"\r" not in token.authorization, "a header has one line")
    else:
        _sane(token)
    _sane(web_push_outcome(status, retry_after))


def _sane(outcome: PushOutcome) -> None:
    match outcome:
        case Accepted():
            pass
        case PushRefused(reason) | RetryLater(reason):
            demand(0 < len(reason) <= _MOST_NAME and reason.isascii(), "a reason can be a label of a metric")
            if isinstance(outcome, RetryLater) and outcome.after is not None:
                demand(0 <= outcome.after < 1e9, "a wait is finite")
        case TokenInvalid():
            demand(outcome.since is None or 0 <= outcome.since < 1e12, "a time is one")


HTTP: Final[tuple[Callable[[bytes], None], ...]] = (http2_frames, http1_answer, meaning)


def push_answer(data: bytes) -> None:
    """HTTP/2 and HTTP/1.1 answers of push services, and what they mean."""
    check, data = choose(data, HTTP)
    check(data)
