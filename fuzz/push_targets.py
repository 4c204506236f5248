"""Answers of push services: HTTP/2 frames, HTTP/1.1, and the outcomes that become of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from fuzz.contract import attempt, choose, demand, demand_equal
from tocsin.errors import DecodeError
from tocsin.push.apns.outcome import apns_outcome
from tocsin.push.http2.connection import Http2Connection
from tocsin.push.http2.exchange import MAX_BODY_BYTES, Http2Answer, Http2Limits, Result
from tocsin.push.provider import Accepted, PushRefused, RetryLater, TokenInvalid
from tocsin.push.webpush.http1_connection import AnswerReader, Http1Answer
from tocsin.push.webpush.outcome import web_push_outcome
from tocsin.transport.tls_stream import TlsStream

OUTCOMES: Final = (Accepted, TokenInvalid, RetryLater, PushRefused)
MOST_SECONDS: Final = 3600.0


# HTTP/2


class _DeafStream:
    """Stands for the TLS stream: takes what is written, and says when it is closed."""

    def __init__(self) -> None:
        self.written = 0
        self.received: Callable[[bytes], None] = lambda _data: None
        self._lost: Callable[[str], None] = lambda _reason: None
        self._closed = False

    def start(self, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        self.received, self._lost = received, lost

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def flush(self) -> None:
        pass

    def close(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._lost(reason)


_loop: asyncio.AbstractEventLoop | None = None


def http2_answers(data: bytes) -> None:
    """Whatever a server sends, nothing raises, every request is answered once, and memory stays bounded.

    The first byte says into how many pieces the rest is cut.
    """
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
    _loop.run_until_complete(_http2_answers(data))


async def _http2_answers(data: bytes) -> None:
    stream = _DeafStream()
    connection = Http2Connection(cast(TlsStream, stream), "fuzz", Http2Limits(), lambda: None)
    answered: list[Result] = []
    connection._start()
    requests = [
        connection.send([(b":method", b"POST", False), (b":path", b"/", False)], b"body") for _ in range(3)
    ]
    for request in requests:
        request.add_done_callback(lambda done: answered.append(done.result()))
    size = max(1, len(data) // (1 + (data[0] if data else 0) % 5))
    for start in range(1, len(data), size):
        if connection.lost is None:
            stream.received(data[start : start + size])
    connection.close("the end")
    for _ in range(3):
        await asyncio.sleep(0)
    demand_equal(len(answered), len(requests), "every request is answered once")
    for result in answered:
        if isinstance(result, Http2Answer):
            demand(100 <= result.status <= 999, "a status has three digits")
            demand(len(result.body) <= MAX_BODY_BYTES, "a body is bounded")
            _is_outcome(apns_outcome(result))
    demand(stream.written < 200_000 + 20 * len(data), "we write little for what we get")


# HTTP/1.1


def http1_answer(data: bytes) -> None:
    """An answer is read in the same way, however its bytes arrive. Only DecodeError may be raised."""
    whole = _read(data, len(data) or 1)
    pieces = _read(data, 3)
    if whole is not None and pieces is not None:
        demand_equal(pieces, whole, "an answer does not depend on how it arrives")
    for answer in (whole, pieces):
        if answer is not None:
            demand(200 <= answer.status <= 599, "an answer has a final status")
            _is_outcome(web_push_outcome(answer.status, answer.retry_after))


def _read(data: bytes, size: int) -> Http1Answer | None:
    reader = AnswerReader()

    def feed() -> Http1Answer | None:
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            if reader.complete:
                break
        return reader.answer

    return attempt(feed, DecodeError)


# Outcomes


def apns_reason(data: bytes) -> None:
    """The status is in the first two bytes; the rest is the body, JSON if all is well."""
    status = 100 + int.from_bytes(data[:2], "big") % 500
    headers = {b"retry-after": data[2:6]}
    _is_outcome(apns_outcome(Http2Answer(status, headers, data[2:])))


def web_push_status(data: bytes) -> None:
    _is_outcome(web_push_outcome(100 + int.from_bytes(data[:2], "big") % 500, data[2:] or None))


def _is_outcome(outcome: Any) -> None:
    demand(isinstance(outcome, OUTCOMES), "every answer has an outcome")
    if isinstance(outcome, RetryLater) and outcome.after is not None:
        demand(0 < outcome.after <= MOST_SECONDS, "a delay is positive and bounded")
    if isinstance(outcome, TokenInvalid) and outcome.since is not None:
        demand(0 <= outcome.since < 1e12, "a time can be compared")


ANSWERS: Final[tuple[Callable[[bytes], None], ...]] = (
    http2_answers,
    http1_answer,
    apns_reason,
    web_push_status,
)


def push_answer(data: bytes) -> None:
    """Answers of push services, over HTTP/2 and HTTP/1.1."""
    check, data = choose(data, ANSWERS)
    check(data)
