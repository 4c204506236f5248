"""Sends HTTP/1.1 requests one at a time over a connection that is kept open.

Not HTTP/2: many self-hosted push services do not support it. Redirects are not followed; they are answers like others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tocsin.errors import ConnectionLost, DecodeError
from tocsin.push.webpush.http1_answer import AnswerReader, Http1Answer
from tocsin.transport.tls_stream import TlsStream

REST_SECONDS: Final = 1.0
"""How long to wait for the end of an answer; after that a new connection is cheaper."""


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
        """Returns the head of the answer; `finish` reads the rest. Raises ConnectionLost or DecodeError."""
        reader = self._reader = AnswerReader()
        self.received = False
        self._stream.write(request)
        while reader.answer is None:
            await self._change()
        return reader.answer

    async def finish(self) -> None:
        """Reads the rest of the answer for at most a second. Closes the connection if it cannot be used again."""
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
        """Waits until something arrives. Raises the error that ended the connection."""
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
        """Like `Http1Connection.post`; also raises ConnectFailed. Call `finish` after an answer.

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
        """Call it after an answer."""
        if self._connection is not None:
            await self._connection.finish()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
