"""The channel between two processes of one program: frames over a Unix socket.

A frame is a kind, the number of a connection, and bytes. Frames that are sent in one turn of the event loop leave
together, in one system call, and arrive in their order.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Self, TypeAlias

from tocsin.errors import DecodeError

MOST_BYTES: Final = 65_536
"""The longest content of a frame: a block, or the facts about a connection, which come from one block."""
READ_BYTES: Final = 262_144
"""How much is read at a time. Then other tasks get their turn."""
SOCKET_BYTES: Final = 1_048_576
"""How much the system may keep for each direction, if it allows that."""

_HEADER: Final = struct.Struct(">BQI")
_SMALL: Final = 2_048
"""Shorter contents are copied behind their header: that is cheaper than a buffer of their own."""
_MOST_BUFFERS: Final = 256


OnFrame: TypeAlias = Callable[[int, int, bytes], None]


class ChannelEnd:
    """One end of a channel that is not in use yet, and may be left to a process that is started."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Return both ends of a new channel."""
        first, second = socket.socketpair()
        return cls(first), cls(second)

    @classmethod
    def inherited(cls, descriptor: int) -> Self:
        """Return the end that another process has left to this one."""
        return cls(socket.socket(fileno=descriptor))

    @property
    def descriptor(self) -> int:
        return self._sock.fileno()

    def take(self) -> socket.socket:
        """Return the socket, which is the caller's from now on."""
        return self._sock

    def close(self) -> None:
        self._sock.close()


class Channel:
    """One end of the channel, which owns the socket."""

    def __init__(self, end: ChannelEnd, on_frame: OnFrame, on_end: Callable[[], None]) -> None:
        """`on_end` is called once, when the other end is gone or has sent what is no frame. Not after `close`.

        `on_frame` raises DecodeError for a frame that the other end must not send.
        """
        sock = end.take()
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._on_frame = on_frame
        self._on_end = on_end
        self._in = bytearray(READ_BYTES + MOST_BYTES)
        self._filled = 0
        self._out: deque[bytes | memoryview] = deque()
        self._scheduled = self._blocked = self._open = False
        self.waiting_bytes = 0
        """Bytes that the system has not taken yet."""
        self._loop.add_reader(sock.fileno(), self._read_ready)
        self._open = True

    def send(self, kind: int, number: int, content: bytes = b"") -> None:
        """Send a frame with the other frames of this turn. It is dropped if the other end is gone."""
        if not self._open:
            return
        header = _HEADER.pack(kind, number, len(content))
        if len(content) < _SMALL:
            self._out.append(header + content)
        else:
            self._out.append(header)
            self._out.append(content)
        self.waiting_bytes += _HEADER.size + len(content)
        if not self._scheduled and not self._blocked:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def flush(self) -> None:
        """Give the system what it takes now, instead of at the end of the turn."""
        if self._open and not self._blocked:
            self._write()

    def close(self) -> None:
        """Close the socket. What has not been sent is lost. May be called again."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            if self._blocked:
                self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._out.clear()
            self.waiting_bytes = 0

    def _flush(self) -> None:
        self._scheduled = False
        self.flush()

    def _write(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._sock.sendmsg(islice(out, _MOST_BUFFERS))
            except BlockingIOError:
                self._wait_until_writable()
                return
            except OSError:
                self._end()
                return
            self.waiting_bytes -= sent
            while sent:
                first = out.popleft()
                if len(first) > sent:
                    out.appendleft(memoryview(first)[sent:])
                    break
                sent -= len(first)
        if self._blocked:
            self._blocked = False
            self._loop.remove_writer(self._sock.fileno())

    def _wait_until_writable(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._loop.add_writer(self._sock.fileno(), self._write)

    def _read_ready(self) -> None:
        if not self._open:
            return  # scheduled before the end
        try:
            count = self._sock.recv_into(memoryview(self._in)[self._filled :])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._end()
            return
        self._filled += count
        try:
            self._hand_over()
        except DecodeError:
            self._end()

    def _hand_over(self) -> None:
        start, view = 0, memoryview(self._in)
        try:
            while self._filled - start >= _HEADER.size and self._open:
                kind, number, size = _HEADER.unpack_from(view, start)
                if size > MOST_BYTES:
                    raise DecodeError("a frame that is too long")
                end = start + _HEADER.size + size
                if end > self._filled:
                    break
                content = bytes(view[start + _HEADER.size : end])
                start = end
                self._on_frame(kind, number, content)
        finally:
            if start:
                left = self._filled - start
                view[:left] = view[start : self._filled]
                self._filled = left

    def _end(self) -> None:
        self.close()
        self._on_end()
