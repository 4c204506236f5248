"""Gets one page from an operator's port, as a router on this machine serves it."""

from __future__ import annotations

import asyncio
from typing import Final

import h11

MAX_PAGE_BYTES: Final = 4_000_000
_READ_BYTES: Final = 65_536


async def get_page(host: str, port: int, path: str, limit: float) -> tuple[int, str]:
    """Status and text, within `limit` seconds. Raises OSError, also for an answer that is not HTTP, or TimeoutError."""
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(method="GET", target=path, headers=[("Host", host), ("Connection", "close")])
    async with asyncio.timeout(limit):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
            return await _read_answer(reader, connection)
        except h11.ProtocolError as error:
            raise ConnectionError(f"the answer from {host} port {port} is not HTTP: {error}") from error
        finally:
            writer.close()


async def _read_answer(reader: asyncio.StreamReader, connection: h11.Connection) -> tuple[int, str]:
    status, body = 0, bytearray()
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                connection.receive_data(await reader.read(_READ_BYTES))
            case h11.Response() as response:
                status = response.status_code
            case h11.Data() as part:
                body += part.data
                if len(body) > MAX_PAGE_BYTES:
                    raise ConnectionError(f"the page is longer than {MAX_PAGE_BYTES:,} bytes")
            case h11.EndOfMessage():
                return status, body.decode(errors="replace")
            case h11.ConnectionClosed():
                raise ConnectionError("the connection was closed before the answer")
