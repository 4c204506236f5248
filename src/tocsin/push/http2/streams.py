"""The streams of one HTTP/2 connection: requests in flight, their answers, and their other ends.

A stream leaves the table when its end is known. Ends are reported together, when all frames that arrived with them are
handled, or in another iteration of the event loop. So callbacks may send the next requests, and are never called during
a send.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from tocsin.push.http2.frames import (
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    Frame,
    FrameType,
    HeaderBlock,
    Http2ErrorCode,
    decode_u31,
    decode_u32,
    encode_frame,
    encode_reset,
    encode_window_update,
    frame_head,
    pack_head,
    unpadded,
)
from tocsin.push.provider import retry_after_seconds

OUR_WINDOW: Final = 1_048_575
"""Bytes of answers that the server may send before we report that they were read."""
MAX_BODY_BYTES: Final = 16_384
"""The part of an answer's body that is read."""
_NO_HEADERS: Final[Mapping[bytes, bytes]] = {}
_STATUSES: Final = {b"%d" % status: status for status in range(100, 1000)}
_made: Final = tuple.__new__
"""Makes a named tuple in half the time."""
_CANCEL = Http2ErrorCode.CANCEL
_NO_ERROR = Http2ErrorCode.NO_ERROR

logger = logging.getLogger(__name__)


class ByteStream(Protocol):
    """The part of `TlsStream` that a connection uses."""

    def start(self, on_data: Callable[[bytes], bool | None], on_lost: Callable[[str], None]) -> None: ...
    def write(self, data: bytes) -> None: ...
    def write_pieces(self, pieces: Iterable[bytes], size: int) -> None: ...
    def flush(self) -> None: ...
    def close(self, reason: str) -> None: ...


class Http2Answer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Return the seconds that the server asks to wait, if it does."""
        return retry_after_seconds(self.headers.get(b"retry-after"))

    def json_object(self) -> Mapping[str, object]:
        """Return the body if it is a JSON object, or else an empty one."""
        try:
            said = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


class Unprocessed(NamedTuple):
    """The server has not begun to process the request, so it can be sent again."""

    reason: str


class Failure(Enum):
    """The scope of a failure."""

    TIMEOUT = "timeout"
    RESET = "reset"
    """This stream alone."""
    CONNECTION = "connection"


class Unanswered(NamedTuple):
    """It is unknown whether the server processed the request, unless its answer had begun."""

    failure: Failure
    reason: str
    status: int = 0
    """The status of an answer without its end."""


Result: TypeAlias = Http2Answer | Unprocessed | Unanswered


class MalformedAnswer(Exception):
    """A malformed answer, which concerns its stream only (RFC 9113, 8.1.1)."""


class Exchange:
    __slots__ = ("answered", "body", "deadline", "headers", "status", "unsent", "window")

    def __init__(self, answered: Callable[[Result], None], deadline: float, window: int) -> None:
        self.answered = answered
        """Called once, in another iteration of the event loop."""
        self.deadline = deadline
        self.window = window
        """The peer's window for this stream, in bytes."""
        self.unsent = b""
        self.status = 0
        self.headers: Mapping[bytes, bytes] = _NO_HEADERS
        self.body = b""

    def read_headers(self, headers: Mapping[bytes, bytes], *, last: bool) -> None:
        """Handle headers of the answer, of an interim answer (1xx), or trailers. Raises MalformedAnswer."""
        if self.status:
            return  # trailers, which carry nothing that we need
        status = _STATUSES.get(headers.get(b":status", b""))
        if status is None:
            raise MalformedAnswer("an answer without a status")
        if status < 200:
            if last:
                raise MalformedAnswer("an interim answer that ends the stream")
            return
        self.status = status
        self.headers = headers

    def read_body(self, part: bytes) -> bool:
        """Add to the body. Returns whether it is longer than we read. Raises MalformedAnswer."""
        if not self.status:
            raise MalformedAnswer("a body before its status")
        self.body += part
        if len(self.body) <= MAX_BODY_BYTES:
            return False
        self.body = self.body[:MAX_BODY_BYTES]
        return True


class Streams:
    """Requests in flight. Methods that take a frame raise ValueError if it breaks the rules of the connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._write = stream.write
        self._loop = asyncio.get_running_loop()
        self.exchanges: dict[int, Exchange] = {}
        self._received = 0
        """Received bytes of DATA by which our window must be reopened."""
        self._ends: list[tuple[Callable[[Result], None], Result]] = []
        self._is_receiving = False
        self.outflow = Outflow(stream)
        self.next_id = 1
        self.answers = 0
        """The number of ended streams since the reader set it to 0."""

    def __len__(self) -> int:
        return len(self.exchanges)

    def open(self, block: bytes, body: bytes, answered: Callable[[Result], None], deadline: float) -> None:
        stream_id = self.next_id
        self.next_id = stream_id + 2
        exchange = Exchange(answered, deadline, self.outflow.stream_window)
        self.exchanges[stream_id] = exchange
        self.outflow.send(stream_id, exchange, block, body)

    def refuse(self, answered: Callable[[Result], None], reason: str) -> None:
        """End a request that cannot be sent."""
        self._report(answered, Unprocessed(reason))

    # Received frames

    def last_headers_received(self, stream_id: int, headers: Mapping[bytes, bytes]) -> None:
        """Handle the headers of an answer without a body, which nearly every push gets, or trailers."""
        exchange = self.exchanges.get(stream_id) or self._find(stream_id)
        if exchange is None:
            return
        try:
            exchange.read_headers(headers, last=True)
        except MalformedAnswer as error:
            self._give_up(stream_id, exchange, error)
        else:
            self._finish(stream_id, exchange)

    def headers_received(self, block: HeaderBlock) -> None:
        if block.ends_stream:
            self.last_headers_received(block.stream_id, block.headers)
            return
        exchange = self._find(block.stream_id)
        if exchange is None:
            return
        try:
            exchange.read_headers(block.headers, last=False)
        except MalformedAnswer as error:
            self._give_up(block.stream_id, exchange, error)

    def body_received(self, frame: Frame) -> None:
        self._received += len(frame.payload)
        if self._received > OUR_WINDOW // 2:
            self._write(encode_window_update(0, self._received))
            self._received = 0
        part = unpadded(frame)
        exchange = self._find(frame.stream_id)
        if exchange is None:
            return
        try:
            too_long = exchange.read_body(part)
        except MalformedAnswer as error:
            self._give_up(frame.stream_id, exchange, error)
            return
        if frame.flags & END_STREAM:
            self._finish(frame.stream_id, exchange)
        elif too_long:
            self._write(encode_reset(frame.stream_id, _CANCEL))
            self._finish(frame.stream_id, exchange)

    def reset(self, frame: Frame) -> None:
        code = decode_u32(frame.payload)
        exchange = self._find(frame.stream_id)
        if exchange is None:
            return
        if code == Http2ErrorCode.REFUSED_STREAM:
            self._end(frame.stream_id, exchange, Unprocessed("stream refused"))
        else:
            self._fail(frame.stream_id, exchange, Failure.RESET, f"stream reset with code {code}")

    def window_updated(self, frame: Frame) -> None:
        increment = decode_u31(frame.payload)
        if not increment:
            raise ValueError("a window increment of 0")
        if frame.stream_id == 0:
            self.outflow.widen(increment)
        elif (exchange := self._find(frame.stream_id)) is not None:
            self.outflow.widen_stream(frame.stream_id, exchange, increment)

    def change_stream_window(self, window: int) -> None:
        """Handle SETTINGS. Raises ValueError."""
        self.outflow.change_stream_window(window, self.exchanges.values())

    # Ends of several streams

    def end_after(self, last: int) -> None:
        """Handle GOAWAY: the peer will not process later streams."""
        for stream_id in [each for each in self.exchanges if each > last]:
            self._end(stream_id, self.exchanges[stream_id], Unprocessed("goaway"))

    def end_overdue(self, now: float) -> None:
        for stream_id, exchange in list(self.exchanges.items()):
            if exchange.deadline > now:
                break  # streams are in the order of their ids
            self._write(encode_reset(stream_id, _CANCEL))
            self._fail(stream_id, exchange, Failure.TIMEOUT, "timeout")

    def fail_all(self, reason: str) -> None:
        """End all streams of a lost connection, perhaps while `outflow` writes to it, which notices that."""
        exchanges, self.exchanges = self.exchanges, {}
        for exchange in exchanges.values():
            self._report(exchange.answered, Unanswered(Failure.CONNECTION, reason, exchange.status))

    def _find(self, stream_id: int) -> Exchange | None:
        """Return the stream, or None if it has ended, which the peer may not know yet."""
        if stream_id >= self.next_id or stream_id % 2 == 0:
            raise ValueError(f"stream {stream_id} was never opened")
        return self.exchanges.get(stream_id)

    def _finish(self, stream_id: int, exchange: Exchange) -> None:
        if self.outflow.stalled and self.outflow.forget(
            stream_id
        ):  # answered without the whole request, of which it wants no more
            self._write(encode_reset(stream_id, _NO_ERROR))
        self.answers += 1
        if self.exchanges.pop(stream_id, None) is not None:  # unless that write has ended the connection
            answer = _made(Http2Answer, (exchange.status, exchange.headers, exchange.body))
            self._ends.append((exchange.answered, answer))  # `frames_end` reports it

    def _give_up(self, stream_id: int, exchange: Exchange, error: MalformedAnswer) -> None:
        self._write(encode_reset(stream_id, Http2ErrorCode.PROTOCOL_ERROR))
        self._fail(stream_id, exchange, Failure.RESET, str(error))

    def _fail(self, stream_id: int, exchange: Exchange, failure: Failure, reason: str) -> None:
        self._end(stream_id, exchange, Unanswered(failure, reason, exchange.status))

    def _end(self, stream_id: int, exchange: Exchange, result: Result) -> None:
        self.outflow.forget(stream_id)
        if self.exchanges.pop(stream_id, None) is not None:
            self._report(exchange.answered, result)

    def _report(self, answered: Callable[[Result], None], result: Result) -> None:
        if not self._ends and not self._is_receiving:
            self._loop.call_soon(self._report_ends)
        self._ends.append((answered, result))

    def frames_begin(self) -> None:
        """Frames have arrived. Their ends are reported by `frames_end`."""
        self._is_receiving = True

    def frames_end(self) -> None:
        self._is_receiving = False
        if self._ends:
            self._report_ends()

    def _report_ends(self) -> None:
        ends, self._ends = self._ends, []
        for answered, result in ends:
            try:
                answered(result)
            except Exception:  # a failure of one callback must not affect the others
                logger.exception("the callback of a request failed")


# Constants, because looking up enum members takes time for every request.
_HEADERS: Final = int(FrameType.HEADERS)
_DATA: Final = int(FrameType.DATA)


class Outflow:
    """Sends requests as far as the peer's windows allow."""

    def __init__(self, stream: ByteStream) -> None:
        self._write, self._write_pieces = stream.write, stream.write_pieces
        self._window = DEFAULT_WINDOW
        self.stalled: dict[int, Exchange] = {}
        """Streams whose data waits for the windows, oldest first."""
        self.stream_window = DEFAULT_WINDOW
        """The window of new streams."""
        self.frame_limit = MAX_FRAME_BYTES

    def send(self, stream_id: int, exchange: Exchange, block: bytes, body: bytes) -> None:
        """Send a request. The caller has checked that `block` fits one frame."""
        size = len(body)
        if size and (
            size > self._window or size > exchange.window or size > self.frame_limit or self.stalled
        ):
            self._write(encode_frame(_HEADERS, END_HEADERS, stream_id, block))
            exchange.unsent = body
            self.stalled[stream_id] = exchange
            self._send_part(stream_id, exchange)
            return
        if not size:
            self._write(frame_head(len(block), _HEADERS, END_HEADERS | END_STREAM, stream_id) + block)
            return
        exchange.window -= size
        self._window -= size
        length = len(block)
        headers = pack_head(length >> 8, length & 0xFF, _HEADERS, END_HEADERS, stream_id)
        data = pack_head(size >> 8, size & 0xFF, _DATA, END_STREAM, stream_id)
        self._write_pieces((headers, block, data, body), length + size + 2 * HEAD_BYTES)

    def forget(self, stream_id: int) -> bool:
        """Drop waiting data. Returns whether the peer did not get all of the request."""
        return self.stalled.pop(stream_id, None) is not None

    def widen(self, increment: int) -> None:
        """Widen the connection's window. Raises ValueError."""
        self._window += increment
        if self._window > MAX_WINDOW:
            raise ValueError("a window that is too large")
        self._send_stalled()

    def widen_stream(self, stream_id: int, exchange: Exchange, increment: int) -> None:
        """Raises ValueError."""
        exchange.window += increment
        if exchange.window > MAX_WINDOW:
            raise ValueError("a window that is too large")
        if stream_id in self.stalled:
            self._send_part(stream_id, exchange)

    def change_stream_window(self, window: int, exchanges: Iterable[Exchange]) -> None:
        """Handle SETTINGS. Windows of open streams change too and may become negative. Raises ValueError."""
        if window > MAX_WINDOW:
            raise ValueError("a window that is too large")
        for exchange in exchanges:
            exchange.window += window - self.stream_window
            if exchange.window > MAX_WINDOW:
                raise ValueError("a window that is too large")
        self.stream_window = window
        self._send_stalled()

    def _send_stalled(self) -> None:
        for stream_id, exchange in list(self.stalled.items()):
            if self._window <= 0:
                return
            self._send_part(stream_id, exchange)

    def _send_part(self, stream_id: int, exchange: Exchange) -> None:
        while (size := min(len(exchange.unsent), exchange.window, self._window, self.frame_limit)) > 0:
            part, exchange.unsent = exchange.unsent[:size], exchange.unsent[size:]
            exchange.window -= size
            self._window -= size
            flags = 0 if exchange.unsent else END_STREAM
            self._write(encode_frame(_DATA, flags, stream_id, part))
        if not exchange.unsent:
            del self.stalled[stream_id]
