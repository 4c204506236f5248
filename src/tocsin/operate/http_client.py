"""Asks for pages over HTTP, one connection for each: an operator's port on this machine, or a configured endpoint.

Answers have a size limit. Redirects are not followed: they are answers like others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import h11

MAX_PAGE_BYTES: Final = 4_000_000
MAX_HEAD_BYTES: Final = 16_384
_READ_BYTES: Final = 65_536

Headers = Sequence[tuple[str, str]]


class BadHttpAnswer(ConnectionError):
    """The answer is not HTTP, or not complete."""


class LongHttpAnswer(ConnectionError):
    """The answer is longer than allowed."""


class HttpEndpoint:
    """A server that is asked with GET. The certificate of an https server is verified with the system's CAs."""

    def __init__(self, url: str, headers: Headers = (), *, longest: int = MAX_PAGE_BYTES) -> None:
        """`url` is absolute, http or https, without user name, query and fragment."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.authority: Final = parts.netloc
        self._host: Final = parts.hostname
        self._port: Final = parts.port or (443 if parts.scheme == "https" else 80)
        self._path: Final = parts.path
        self._tls: Final = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers: Final = [("Host", self.authority), *headers, ("Connection", "close")]
        self._longest: Final = longest

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and content. Raises OSError, `BadHttpAnswer` and `LongHttpAnswer` among it."""
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        request = h11.Request(method="GET", target=self._path + path, headers=self._headers)
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            writer.write((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
            return await self._read(reader, connection)
        except h11.ProtocolError as error:
            raise BadHttpAnswer(f"the answer from {self.authority} is not HTTP: {error}") from error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, connection: h11.Connection) -> tuple[int, bytes]:
        status, content = 0, bytearray()
        while True:
            match connection.next_event():
                case h11.NEED_DATA:
                    data = await reader.read(_READ_BYTES)
                    if not data and connection.their_state is h11.SEND_RESPONSE:
                        raise ConnectionError("the connection was closed before the answer")
                    connection.receive_data(data)
                case h11.Response() as response:
                    status = response.status_code
                case h11.Data() as part:
                    content += part.data
                    if len(content) > self._longest:
                        raise LongHttpAnswer(f"the page is longer than {self._longest:,} bytes")
                case h11.EndOfMessage():
                    return status, bytes(content)


async def get_page(host: str, port: int, path: str, limit: float) -> tuple[int, str]:
    """Status and text, within `limit` seconds. Raises OSError, also for an answer that is not HTTP, or TimeoutError."""
    endpoint = HttpEndpoint(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    async with asyncio.timeout(limit):
        status, content = await endpoint.get(path)
    return status, content.decode(errors="replace")
