"""Requests over HTTP/1.1, one at a time, on a connection that is kept.

Not HTTP/2: many push services that people run themselves do not have it. Redirects are answers like any other.
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
"""For the end of an answer whose beginning is there; then another connection is cheaper."""


class Http1Connection:
    def __init__(self, stream: TlsStream) -> None:
        self._stream = stream
        self._reader: AnswerReader | None = None
        self._changed: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self._broken: DecodeError | None = None
        self.received = False
        """Something of an answer to the last request has come."""
        stream.start(self._on_data, self._on_lost)

    @property
    def usable(self) -> bool:
        return self._lost is None

    async def post(self, request: bytes) -> Http1Answer:
        """The head of the answer; `finish` reads the rest. Raises ConnectionLost, DecodeError."""
        reader = self._reader = AnswerReader()
        self.received = False
        self._stream.write(request)
        while reader.answer is None:
            await self._change()
        return reader.answer

    async def finish(self) -> None:
        """Reads the rest of the answer, for a second at most; closes unless another request may follow."""
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
        """Waits until something comes; raises what ended the connection."""
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
                raise DecodeError("an answer that nobody asked for")
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
    """One connection at a time, made when it is needed."""

    def __init__(self, connect: Callable[[], Awaitable[TlsStream]]) -> None:
        self._connect = connect
        self._connection: Http1Connection | None = None

    async def post(self, request: bytes) -> Http1Answer:
        """As of a connection; raises ConnectFailed if there is none. After an answer `finish` must follow.

        A service may have closed a connection that it did not need: then the request, which it has not answered, goes
        out on another.
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
        """After an answer."""
        if self._connection is not None:
            await self._connection.finish()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
