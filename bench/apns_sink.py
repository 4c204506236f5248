"""An HTTP/2 server that accepts every push after a given delay and does nothing else: the provider of benchmarks.

For tests use `tocsin.push.fake`, which checks requests. This one only has to be faster than what is measured.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Final

from tocsin.push.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameReader,
    FrameType,
    Setting,
    encode_frame,
    encode_settings,
    encode_window_update,
    frame_head,
)
from tocsin.transport.tls_stream import TlsStream

STREAMS: Final = 1000
WINDOW: Final = (1 << 31) - 1
_STATUS_200: Final = b"\x88"  # the eighth entry of HPACK's fixed table
_ACCEPTED: Final = len(_STATUS_200)


class ApnsSink:
    """Listens on a free port of loopback. Every answer has the same body, by default none."""

    def __init__(self, context: ssl.SSLContext, body: bytes = b"") -> None:
        self._context = context
        self.body = body
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self.delay = 0.0
        self.accepted = 0
        self._connections: list[_SinkConnection] = []

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listening)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(True)
            with suppress(OSError):
                tls = await asyncio.to_thread(self._context.wrap_socket, sock, True)
                tls.setblocking(False)
                self._connections.append(_SinkConnection(self, TlsStream(tls)))


class _SinkConnection:
    def __init__(self, sink: ApnsSink, stream: TlsStream) -> None:
        self._sink = sink
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._preface = len(PREFACE)
        self._unacknowledged = 0
        settings = {Setting.MAX_CONCURRENT_STREAMS: STREAMS, Setting.INITIAL_WINDOW_SIZE: WINDOW}
        stream.write(encode_settings(settings) + encode_window_update(0, WINDOW - 65_535))
        stream.start(self._received, lambda _reason: None)

    def _received(self, data: bytes) -> None:
        if self._preface:
            skipped = min(self._preface, len(data))
            self._preface -= skipped
            data = data[skipped:]
        answers = []
        for kind, flags, stream_id, payload in self._frames.feed(data):
            if kind == FrameType.DATA:
                self._unacknowledged += len(payload)
                if flags & END_STREAM:
                    answers.append(_answer(stream_id, self._sink.body))
            elif kind == FrameType.SETTINGS and not flags & ACK:
                self._stream.write(encode_frame(FrameType.SETTINGS, ACK, 0))
            elif kind == FrameType.PING and not flags & ACK:
                self._stream.write(encode_frame(FrameType.PING, ACK, 0, payload))
        if self._unacknowledged > WINDOW // 4:
            self._stream.write(encode_window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        if answers:
            self._sink.accepted += len(answers)
            joined = b"".join(answers)
            if self._sink.delay:
                self._loop.call_later(self._sink.delay, self._stream.write, joined)
            else:
                self._stream.write(joined)


def _answer(stream_id: int, body: bytes) -> bytes:
    last = 0 if body else END_STREAM
    head = frame_head(_ACCEPTED, FrameType.HEADERS, END_HEADERS | last, stream_id) + _STATUS_200
    return head + encode_frame(FrameType.DATA, END_STREAM, stream_id, body) if body else head
