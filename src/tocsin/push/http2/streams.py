"""The streams of one HTTP/2 connection: requests that are under way, and their ends.

A stream leaves the table when its end is known. Ends are told together in another turn of the loop: whoever is told
may send the next request, and nobody is told while he is still sending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from tocsin.push.http2.exchange import (
    OUR_WINDOW,
    Exchange,
    Failure,
    Http2Answer,
    MalformedAnswer,
    Result,
    Unanswered,
    Unprocessed,
)
from tocsin.push.http2.frames import (
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    Frame,
    FrameType,
    Http2ErrorCode,
    decode_u31,
    decode_u32,
    encode_frame,
    encode_reset,
    encode_window_update,
    frame_head,
    unpadded,
)
from tocsin.push.http2.header_blocks import HeaderBlock

_CANCEL = Http2ErrorCode.CANCEL
_NO_ERROR = Http2ErrorCode.NO_ERROR

logger = logging.getLogger(__name__)


class Streams:
    """Methods that take a frame raise ValueError if the peer breaks the rules of the connection with it."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._exchanges: dict[int, Exchange] = {}
        self._received = 0
        """Bytes of DATA that the peer's window to us lacks."""
        self._ends: list[tuple[Callable[[Result], None], Result]] = []
        self.outflow = Outflow(write)
        self.next_id = 1
        self.answers = 0
        """How many came to their end; whoever reads it sets it back."""

    def __len__(self) -> int:
        return len(self._exchanges)

    def open(self, block: bytes, body: bytes, answered: Callable[[Result], None], deadline: float) -> None:
        stream_id = self.next_id
        self.next_id = stream_id + 2
        exchange = Exchange(answered, deadline, self.outflow.stream_window)
        self._exchanges[stream_id] = exchange
        self.outflow.send(stream_id, exchange, block, body)

    def refuse(self, answered: Callable[[Result], None], reason: str) -> None:
        """A request that cannot be sent."""
        self._tell(answered, Unprocessed(reason))

    # What arrives

    def headers_received(self, block: HeaderBlock) -> None:
        exchange = self._find(block.stream_id)
        if exchange is None:
            return
        try:
            exchange.read_headers(block.headers, last=block.ends_stream)
        except MalformedAnswer as error:
            self._give_up(block.stream_id, exchange, error)
            return
        if block.ends_stream:
            self._finish(block.stream_id, exchange)

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
            raise ValueError("a window that grows by nothing")
        if frame.stream_id == 0:
            self.outflow.widen(increment)
        elif (exchange := self._find(frame.stream_id)) is not None:
            self.outflow.widen_stream(frame.stream_id, exchange, increment)

    def change_stream_window(self, window: int) -> None:
        """SETTINGS. Raises ValueError."""
        self.outflow.change_stream_window(window, self._exchanges.values())

    # Ends of many

    def end_after(self, last: int) -> None:
        """GOAWAY: the peer will not begin with the later ones."""
        for stream_id in [each for each in self._exchanges if each > last]:
            self._end(stream_id, self._exchanges[stream_id], Unprocessed("goaway"))

    def end_overdue(self, now: float) -> None:
        for stream_id, exchange in list(self._exchanges.items()):
            if exchange.deadline > now:
                break  # they are in the order of their beginning
            self._write(encode_reset(stream_id, _CANCEL))
            self._fail(stream_id, exchange, Failure.TIMEOUT, "timeout")

    def fail_all(self, reason: str) -> None:
        """The connection is lost; perhaps while `outflow` is writing to it, which finds that out by itself."""
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            self._tell(exchange.answered, Unanswered(Failure.CONNECTION, reason, exchange.status))

    def _find(self, stream_id: int) -> Exchange | None:
        """None if it is over: the peer may not know that yet."""
        if stream_id >= self.next_id or stream_id % 2 == 0:
            raise ValueError(f"a stream {stream_id} that nobody opened")
        return self._exchanges.get(stream_id)

    def _finish(self, stream_id: int, exchange: Exchange) -> None:
        if self.outflow.forget(stream_id):  # answered before it had all of the request, and wants no more
            self._write(encode_reset(stream_id, _NO_ERROR))
        self.answers += 1
        if self._exchanges.pop(stream_id, None) is not None:  # unless that write has ended the connection
            self._tell(exchange.answered, Http2Answer(exchange.status, exchange.headers, exchange.body))

    def _give_up(self, stream_id: int, exchange: Exchange, error: MalformedAnswer) -> None:
        self._write(encode_reset(stream_id, Http2ErrorCode.PROTOCOL_ERROR))
        self._fail(stream_id, exchange, Failure.RESET, str(error))

    def _fail(self, stream_id: int, exchange: Exchange, failure: Failure, reason: str) -> None:
        self._end(stream_id, exchange, Unanswered(failure, reason, exchange.status))

    def _end(self, stream_id: int, exchange: Exchange, result: Result) -> None:
        self.outflow.forget(stream_id)
        if self._exchanges.pop(stream_id, None) is not None:
            self._tell(exchange.answered, result)

    def _tell(self, answered: Callable[[Result], None], result: Result) -> None:
        if not self._ends:
            self._loop.call_soon(self._tell_ends)
        self._ends.append((answered, result))

    def _tell_ends(self) -> None:
        ends, self._ends = self._ends, []
        for answered, result in ends:
            try:
                answered(result)
            except Exception:  # of one request: the others are told all the same
                logger.exception("the end of a request could not be handled")


# By names of their own: finding a member of an enumeration takes time for every request.
_HEADERS: Final = int(FrameType.HEADERS)
_DATA: Final = int(FrameType.DATA)


class Outflow:
    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._window = DEFAULT_WINDOW
        self._stalled: dict[int, Exchange] = {}
        """With data that the windows held back, oldest first."""
        self.stream_window = DEFAULT_WINDOW
        """Of streams to come."""
        self.frame_limit = MAX_FRAME_BYTES

    def send(self, stream_id: int, exchange: Exchange, block: bytes, body: bytes) -> None:
        """`block` fits one frame: those who make it know."""
        size = len(body)
        if size and (size > min(exchange.window, self._window, self.frame_limit) or self._stalled):
            self._write(encode_frame(_HEADERS, END_HEADERS, stream_id, block))
            exchange.unsent = body
            self._stalled[stream_id] = exchange
            self._send_part(stream_id, exchange)
            return
        exchange.window -= size
        self._window -= size
        end = 0 if size else END_STREAM
        parts = [frame_head(len(block), _HEADERS, END_HEADERS | end, stream_id), block]
        if size:
            parts += (frame_head(size, _DATA, END_STREAM, stream_id), body)
        self._write(b"".join(parts))

    def forget(self, stream_id: int) -> bool:
        """Returns whether the peer has not got all of it."""
        return self._stalled.pop(stream_id, None) is not None

    def widen(self, increment: int) -> None:
        """The connection's window. Raises ValueError."""
        self._window += increment
        if self._window > MAX_WINDOW:
            raise ValueError("a window too wide")
        self._send_stalled()

    def widen_stream(self, stream_id: int, exchange: Exchange, increment: int) -> None:
        """Raises ValueError."""
        exchange.window += increment
        if exchange.window > MAX_WINDOW:
            raise ValueError("a window too wide")
        if stream_id in self._stalled:
            self._send_part(stream_id, exchange)

    def change_stream_window(self, window: int, exchanges: Iterable[Exchange]) -> None:
        """SETTINGS: also for the streams there are, whose windows may become negative. Raises ValueError."""
        if window > MAX_WINDOW:
            raise ValueError("a window too wide")
        for exchange in exchanges:
            exchange.window += window - self.stream_window
            if exchange.window > MAX_WINDOW:
                raise ValueError("a window too wide")
        self.stream_window = window
        self._send_stalled()

    def _send_stalled(self) -> None:
        for stream_id, exchange in list(self._stalled.items()):
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
            del self._stalled[stream_id]
