"""Sends HTTP/1.1 requests one at a time over a connection that is kept open.

Not HTTP/2: many self-hosted push services do not support it. Redirects are not followed; they are answers like others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from tocsin.errors import ConnectionLost, DecodeError
from tocsin.transport.tls_stream import TlsStream

REST_SECONDS: Final = 1.0
"""Seconds to wait for the end of an answer; after that a new connection is cheaper."""


class Http1Connection:
    def __init__(self, stream: TlsStream) -> None:
        self._stream = stream
        self._reader: AnswerReader | None = None
        self._changed: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self._broken: DecodeError | None = None
        self.received = False
        """Whether any part of an answer to the last request has arrived."""
        stream.start(self._on_data, self._on_lost)

    @property
    def usable(self) -> bool:
        return self._lost is None

    async def post(self, request: bytes) -> Http1Answer:
        """Send a request and return the head of the answer; `finish` reads the rest.

        Raises ConnectionLost or DecodeError.
        """
        reader = self._reader = AnswerReader()
        self.received = False
        self._stream.write(request)
        while reader.answer is None:
            await self._change()
        return reader.answer

    async def finish(self) -> None:
        """Read the rest of the answer for at most a second. Closes the connection if it cannot be reused."""
        reader = self._reader
        with suppress(ConnectionLost, DecodeError, TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while reader is not None and not reader.complete:
                    await self._change()
        if reader is None or not reader.reusable:
            self.close()

    def close(self) -> None:
        self._stream.close("no longer needed")

    async def _change(self) -> None:
        """Wait until something arrives. Raises the error that ended the connection."""
        if self._broken is not None:
            raise self._broken
        if self._lost is not None:
            raise ConnectionLost(self._lost)
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _on_data(self, data: bytes) -> None:
        self.received = True
        try:
            if self._reader is None:
                raise DecodeError("the service sent an answer without a request")
            self._reader.feed(data)
        except DecodeError as error:
            self._broken = error
            self._stream.close(str(error))
        self._wake()

    def _on_lost(self, reason: str) -> None:
        self._lost = reason
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class Http1Client:
    """Keeps one connection at a time and opens it when it is needed."""

    def __init__(self, connect: Callable[[], Awaitable[TlsStream]]) -> None:
        self._connect = connect
        self._connection: Http1Connection | None = None

    async def post(self, request: bytes) -> Http1Answer:
        """Post as `Http1Connection.post`; also raises ConnectFailed. Call `finish` after an answer.

        A service may have closed a connection that was idle. If it has not begun to answer, the request is sent again
        over a new connection.
        """
        try:
            return await self._posted(request)
        except BaseException:
            self.close()
            raise

    async def _posted(self, request: bytes) -> Http1Answer:
        connection = self._connection
        if connection is not None and connection.usable:
            try:
                return await connection.post(request)
            except ConnectionLost:
                if connection.received:
                    raise
        connection = self._connection = Http1Connection(await self._connect())
        return await connection.post(request)

    async def finish(self) -> None:
        """Read the rest of an answer."""
        if self._connection is not None:
            await self._connection.finish()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


MAX_HEAD_BYTES: Final = 16_384
MAX_REST_BYTES: Final = 65_536
"""The limit of bytes after the head, if the connection is to be reused."""
MAX_LINE_BYTES: Final = 256
"""The limit of a line with a chunk's size and extensions, or of the trailer."""
MOST_INTERIM_ANSWERS: Final = 4

_END_OF_HEAD: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\x20-\x7e\x80-\xff\t]*)?")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,7})[ \t]*(?:;.*)?")
_WITHOUT_BODY: Final = frozenset({204, 304})


class Http1Answer(NamedTuple):
    status: int
    retry_after: bytes | None


class AnswerReader:
    """One answer. `feed` raises DecodeError if the bytes are not an answer, or if its head is too long."""

    def __init__(self) -> None:
        self.answer: Http1Answer | None = None
        """The head, once it is complete."""
        self.complete = False
        """Whether nothing more needs to be read."""
        self.reusable = False
        """Whether the answer was read to its end, so that another may follow on the connection."""
        self._data = bytearray()
        self._interim = 0
        self._keep_alive = False
        self._chunked = False
        self._in_trailers = False
        self._left = 0
        """Bytes of the body that are still to come, or of a chunk with its end of line."""
        self._rest = 0
        """Bytes that have arrived after the head."""

    def feed(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
            raise DecodeError("the service sent bytes after the end of its answer")
        self._data += data
        while self.answer is None:
            if not self._read_head():
                return
        self._rest += len(data)
        self._read_rest()

    def _read_head(self) -> bool:
        """Read a head. Returns whether it was complete, also for an interim answer."""
        end = self._data.find(_END_OF_HEAD, 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._data) >= MAX_HEAD_BYTES:
                raise DecodeError(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
            return False
        first, *lines = bytes(self._data[:end]).split(b"\r\n")
        del self._data[: end + len(_END_OF_HEAD)]
        found = _STATUS.fullmatch(first)
        if found is None:
            raise DecodeError("the answer is not HTTP/1.1")
        status = int(found[2])
        if status >= 200:
            self._take(status, found[1] == b"1", _headers(lines))
            return True
        self._interim += 1
        if status == 101 or self._interim > MOST_INTERIM_ANSWERS:
            raise DecodeError(f"the service sends interim answers ({status}) instead of an answer")
        return True

    def _take(self, status: int, is_current: bool, headers: Mapping[bytes, bytes]) -> None:
        self.answer = Http1Answer(status, headers.get(b"retry-after"))
        options = {each.strip().lower() for each in headers.get(b"connection", b"").split(b",")}
        self._keep_alive = is_current and b"close" not in options
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if status in _WITHOUT_BODY:
            self._end()
        elif coding is not None and coding.lower() == b"chunked" and length is None:
            self._chunked = True
        elif coding is None and length is not None and _LENGTH.fullmatch(length):
            self._left = int(length)
            if self._left > MAX_REST_BYTES:
                self._leave()
        else:
            self._leave()  # such an answer ends when the connection does

    def _read_rest(self) -> None:
        if self.complete:
            return
        if self._rest > MAX_REST_BYTES + MAX_HEAD_BYTES:
            self._leave()
        elif self._chunked:
            self._read_chunks()
        else:
            self._skip()
            if not self._left:
                self._end()

    def _read_chunks(self) -> None:
        while True:
            self._skip()
            if self._left:
                return
            end = self._data.find(b"\r\n", 0, MAX_LINE_BYTES)
            if end < 0:
                if len(self._data) >= MAX_LINE_BYTES:
                    raise DecodeError(f"a line in the answer is longer than {MAX_LINE_BYTES} bytes")
                return
            line = bytes(self._data[:end])
            del self._data[: end + 2]
            if not self._in_trailers:
                self._begin_chunk(line)
            elif not line:
                self._end()
                return

    def _begin_chunk(self, line: bytes) -> None:
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise DecodeError("a chunk of the answer has no valid size")
        size = int(found[1], 16)
        self._in_trailers = not size
        self._left = size + 2 if size else 0

    def _skip(self) -> None:
        skipped = min(self._left, len(self._data))
        del self._data[:skipped]
        self._left -= skipped

    def _end(self) -> None:
        self.complete = True
        self.reusable = self._keep_alive and not self._data

    def _leave(self) -> None:
        """End the answer, leaving the rest unread."""
        self.complete = True


def _headers(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return headers by lower-case name. Values of one name are joined, so that two lengths are not a valid one."""
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise DecodeError("the head of the answer has a line that is not a header")
        key, value = name.lower(), value.strip(b" \t")
        headers[key] = headers[key] + b", " + value if key in headers else value
    return headers
