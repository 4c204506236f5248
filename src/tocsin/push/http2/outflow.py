"""Bodies of requests on their way out, as far as the peer's windows allow (RFC 9113, 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tocsin.push.http2.exchange import Exchange
from tocsin.push.http2.frames import (
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    MAX_FRAME_BYTES,
    MAX_WINDOW,
    FrameType,
    encode_frame,
    frame_head,
)

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
