"""One HTTP/2 connection to a server that answers short requests: many streams, no task for any of them.

Theory of operation. `send` writes the request's frames at once, as far as the peer's windows allow, and returns a
future. The callback of the socket handles arriving frames. Once a second a watch ends overdue streams and probes a
silent connection with PING, sooner if an answer is awaited. When the peer sends GOAWAY, streams that it will not
process fail as `Unprocessed` and can safely be sent again on another connection. The other streams run to their end.

A peer that breaks the rules, floods us with frames that carry no answer, or does not read what it asked for loses its
connection. Nothing else is affected.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tocsin.errors import ConnectFailed
from tocsin.push.http2.frames import (
    ACK,
    CONNECTION_FRAMES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    MAX_FRAME_BYTES,
    PREFACE,
    STREAM_FRAMES,
    Frame,
    FrameReader,
    FrameType,
    HeaderBlocks,
    Http2ErrorCode,
    RequestBlocks,
    Setting,
    SharedHeaders,
    decode_settings,
    decode_u31,
    encode_frame,
    encode_goaway,
    encode_settings,
    encode_window_update,
)
from tocsin.push.http2.hpack import Header
from tocsin.push.http2.streams import (
    OUR_WINDOW,
    ByteStream,
    Result,
    Streams,
)
from tocsin.transport.tls_stream import TlsStream

STREAMS_BEFORE_SETTINGS: Final = 100
MOST_STREAMS: Final = 1000
LAST_STREAM_ID: Final = (1 << 31) - 1001
MAX_IDLE_FRAMES: Final = 10_000
"""Frames within a second that end no stream. Each stream that ends allows some more."""
IDLE_FRAMES_PER_ANSWER: Final = 8
# Constants for the frame types of every answer, because looking up an enum member takes longer than comparing it.
_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_CONTINUATION: Final = int(FrameType.CONTINUATION)
_WHOLE: Final = END_HEADERS | END_STREAM
"""Flags of an answer without a body: nearly every answer is one such frame."""
_SETTINGS: Final = int(FrameType.SETTINGS)


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Time limits in seconds."""

    connect: float = 25.0
    request: float = 25.0
    ping_after: float = 60.0
    """Seconds of silence before a PING."""
    ping_after_when_busy: float = 5.0
    """Seconds of silence before a PING while answers are awaited."""
    ping_answer: float = 10.0
    watch: float = 1.0


class HttpsServer(NamedTuple):
    """A server, and how to verify it."""

    host: str
    port: int
    context: ssl.SSLContext


class Http2Connection:
    """A connection, made by `connect`. `on_change` is called when there may be more room, and when it is closing."""

    def __init__(
        self, stream: ByteStream, name: str, limits: Http2Limits, on_change: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tls = stream
        self._name = name
        self._limits = limits
        self._on_change = on_change
        self._frames = FrameReader()
        self._blocks = RequestBlocks()
        self._header_blocks = HeaderBlocks()
        self._streams = Streams(stream)
        self._limit = STREAMS_BEFORE_SETTINGS
        self._idle_frames = 0
        self._barred_at: float | None = None
        """The time since which the peer allows no stream at all."""
        self._heard_at = self._loop.time()
        self._pinged_at: float | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.draining = False
        self.lost: str | None = None
        self._watch = self._loop.call_later(limits.watch, self._look)

    @classmethod
    async def connect(
        cls,
        where: HttpsServer,
        limits: Http2Limits,
        on_change: Callable[[], None] = lambda: None,
    ) -> Http2Connection:
        """Connect, and return when the server's settings are known. Raises ConnectFailed."""
        deadline = asyncio.get_running_loop().time() + limits.connect
        stream = await TlsStream.connect(where.host, where.port, where.context, limits.connect)
        connection = cls(stream, where.host, limits, on_change)
        connection._start()
        try:
            async with asyncio.timeout_at(deadline):
                await connection._ready
        except TimeoutError:
            connection.close("no settings")
            raise ConnectFailed(
                f"{where.host} did not send HTTP/2 settings within {limits.connect:g} s"
            ) from None
        except BaseException:
            connection.close("given up")
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether it takes requests, now or when others have ended."""
        return not self.draining and self.lost is None

    @property
    def room(self) -> int:
        """The number of requests that can be sent now."""
        if self.draining or self.lost is not None:
            return 0
        free = self._limit - len(self._streams.exchanges)  # negative after the peer has lowered its limit
        return free if free > 0 else 0

    @property
    def streams(self) -> int:
        return len(self._streams)

    def send(self, headers: Sequence[Header], body: bytes) -> asyncio.Future[Result]:
        """Send a request. The caller checked that there is room. The future never has an exception."""
        answer: asyncio.Future[Result] = self._loop.create_future()

        def answered(result: Result) -> None:
            if not answer.done():
                answer.set_result(result)

        if self.room <= 0:
            self._streams.refuse(answered, self.lost or "no room")
        else:
            self._open(self._blocks.encode(tuple(headers)), body, answered)
        return answer

    def request(
        self, shared: SharedHeaders, path: bytes, own: bytes, body: bytes, answered: Callable[[Result], None]
    ) -> None:
        """Send one of many requests with shared headers. `own` is as in `RequestBlocks.encode_request`.

        `answered` is called in another iteration of the event loop.
        """
        if self.draining or self.lost is not None or len(self._streams.exchanges) >= self._limit:
            self._streams.refuse(answered, self.lost or "no room")
        else:
            self._open(self._blocks.encode_request(shared, path, own), body, answered)

    def _open(self, block: bytes, body: bytes, answered: Callable[[Result], None]) -> None:
        now = self._loop.time()
        if not self._streams.exchanges:
            self._heard_at = now  # the silence before this does not count against the answer
        self._streams.open(block, body, answered, now + self._limits.request)
        if self._streams.next_id > LAST_STREAM_ID:
            self.draining = True

    def close(self, reason: str) -> None:
        """Close at once. Requests in flight fail as unanswered."""
        self._tls.close(reason)

    def retire(self) -> None:
        """Take no more requests, and close after the answers in flight."""
        self.draining = True
        if not self._streams:
            self._goodbye(Http2ErrorCode.NO_ERROR, "retired")

    async def drain(self, limit: float) -> None:
        """Take no more requests, wait for the answers in flight, then close."""
        self.retire()
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(self._ended)
        except TimeoutError:
            pass
        finally:
            self._goodbye(Http2ErrorCode.NO_ERROR, "closed by us")

    def _start(self) -> None:
        self._tls.write(
            PREFACE
            + encode_settings(
                {
                    Setting.ENABLE_PUSH: 0,
                    Setting.MAX_CONCURRENT_STREAMS: 100,
                    Setting.INITIAL_WINDOW_SIZE: OUR_WINDOW,
                    Setting.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
                }
            )
            + encode_window_update(0, OUR_WINDOW - DEFAULT_WINDOW)
        )
        self._tls.start(self._data_received, self._lost)

    def _data_received(self, data: bytes) -> bool:
        self._heard_at = self._loop.time()
        self._streams.frames_begin()
        frames: list[Frame] = []
        try:
            frames = self._frames.feed(data)
            self._handle_all(frames)
        except ValueError as error:
            self._goodbye(Http2ErrorCode.PROTOCOL_ERROR, f"{self._name} broke HTTP/2: {error}")
        finally:
            self._streams.frames_end()
        self._leave_if_drained()
        # Answers that come together are rarely the last.
        return len(frames) > 1 and bool(self._streams.exchanges)

    def _handle_all(self, frames: list[Frame]) -> None:
        streams, blocks, ready = self._streams, self._header_blocks, self._ready.done
        for frame in frames:
            kind, flags, stream_id, payload = frame
            if kind == _HEADERS and flags == _WHOLE and stream_id and blocks.begun is None and ready():
                streams.last_headers_received(stream_id, blocks.decoded(payload))
            else:
                self._handle(frame)
            if self.lost is not None:
                return
        self._idle_frames = max(0, self._idle_frames + len(frames) - streams.answers * IDLE_FRAMES_PER_ANSWER)
        streams.answers = 0
        if self._idle_frames > MAX_IDLE_FRAMES:
            self._goodbye(Http2ErrorCode.ENHANCE_YOUR_CALM, f"{self._name} floods us with frames")

    def _handle(self, frame: Frame) -> None:
        kind = frame.kind
        if self._header_blocks.begun is not None and kind != _CONTINUATION:
            raise ValueError("a header block without its continuation")
        if kind != _SETTINGS and not self._ready.done():
            raise ValueError("the first frame is not SETTINGS")
        if (kind in STREAM_FRAMES and frame.stream_id == 0) or (
            kind in CONNECTION_FRAMES and frame.stream_id
        ):
            raise ValueError(f"a frame of type {kind} for stream {frame.stream_id}")
        if kind in (_HEADERS, _CONTINUATION):
            blocks = self._header_blocks
            block = blocks.begin(frame) if kind == _HEADERS else blocks.go_on(frame)
            if block is not None:
                self._streams.headers_received(block)
        elif kind == _DATA:
            self._streams.body_received(frame)
        else:
            self._handle_seldom(frame)

    def _handle_seldom(self, frame: Frame) -> None:
        match frame.kind:
            case FrameType.WINDOW_UPDATE:
                self._streams.window_updated(frame)
            case FrameType.RST_STREAM:
                self._streams.reset(frame)
            case FrameType.SETTINGS:
                self._settings_received(frame)
            case FrameType.PING:
                self._ping_received(frame)
            case FrameType.GOAWAY:
                self._going_away(decode_u31(frame.payload[:4]))
            case FrameType.PUSH_PROMISE:
                raise ValueError("PUSH_PROMISE, which we do not allow")

    # Settings

    def _settings_received(self, frame: Frame) -> None:
        if frame.flags & ACK:
            if frame.payload or not self._ready.done():
                raise ValueError("an acknowledgement of SETTINGS with a payload")
            return
        settings = decode_settings(frame.payload)
        self._tls.write(encode_frame(FrameType.SETTINGS, ACK, 0))
        self._limit = min(MOST_STREAMS, settings.get(Setting.MAX_CONCURRENT_STREAMS, self._limit))
        self._barred_at = None if self._limit else self._loop.time()
        if (frame_limit := settings.get(Setting.MAX_FRAME_SIZE)) is not None:
            self._streams.outflow.frame_limit = min(65_535, frame_limit)
        if (table := settings.get(Setting.HEADER_TABLE_SIZE)) is not None:
            self._blocks.change_table_size(min(table, 4096))
        if (window := settings.get(Setting.INITIAL_WINDOW_SIZE)) is not None:
            self._streams.change_stream_window(window)
        if not self._ready.done():
            self._ready.set_result(None)
        self._on_change()

    # Liveness and closing

    def _ping_received(self, frame: Frame) -> None:
        if len(frame.payload) != 8:
            raise ValueError("a PING of the wrong length")
        if frame.flags & ACK:
            self._pinged_at = None
        else:
            self._tls.write(encode_frame(FrameType.PING, ACK, 0, frame.payload))

    def _going_away(self, last: int) -> None:
        self.draining = True
        self._streams.end_after(last)
        if self._streams:
            self._on_change()
        else:
            self._goodbye(Http2ErrorCode.NO_ERROR, "drained")

    def _look(self) -> None:
        now = self._loop.time()
        self._idle_frames = 0
        self._streams.end_overdue(now)
        self._leave_if_drained()
        silence = self._limits.ping_after_when_busy if self._streams else self._limits.ping_after
        if self._pinged_at is not None and now - self._pinged_at > self._limits.ping_answer:
            self.close(f"{self._name} does not answer PING")
        elif self._pinged_at is None and now - self._heard_at > silence:
            self._pinged_at = now
            self._tls.write(encode_frame(FrameType.PING, 0, 0, bytes(8)))
        if self._barred_at is not None and now - self._barred_at > self._limits.request:
            self.retire()  # alive, but useless: another connection may work
        if self.lost is None:
            self._watch = self._loop.call_later(self._limits.watch, self._look)

    def _leave_if_drained(self) -> None:
        if self.draining and not self._streams and self.lost is None:
            self._goodbye(Http2ErrorCode.NO_ERROR, "drained")

    def _goodbye(self, code: Http2ErrorCode, reason: str) -> None:
        self._tls.write(encode_goaway(code))
        self._tls.flush()
        self.close(reason)

    def _lost(self, reason: str) -> None:
        self.lost = reason
        self._watch.cancel()
        if not self._ready.done():
            self._ready.set_exception(ConnectFailed(f"{self._name}: {reason}"))
            self._ready.exception()  # mark the exception as seen
        self._streams.fail_all(reason)
        if not self._ended.done():
            self._ended.set_result(None)
        self._on_change()
