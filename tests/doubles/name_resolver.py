"""A resolver of names over HTTP that answers what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.doubles.routers import HOST

RECORD = (
    b'{"name":"alice.simplex","nickname":"","website":"","location":"","simplexContact":["https://x/a#k"],'
    b'"simplexChannel":[],"eth":null,"btc":null,"xmr":null,"dot":null,"owner":"0x00","resolver":"0x00"}'
)


def answer(status: str = "200 OK", body: bytes = RECORD, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class FakeResolver:
    port: int = 0
    answers: dict[str, bytes] = field(default_factory=dict)
    """By path. Others are answered 404."""
    requests: list[str] = field(default_factory=list)
    """Heads of requests."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests are answered once this is set."""

    @property
    def names(self) -> list[str]:
        """The paths of requests for names."""
        paths = (head.split(" ")[1] for head in self.requests)
        return [path for path in paths if "/resolve/" in path]

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            await self.held.wait()
            writer.write(self.answers.get(head.split(" ")[1], answer("404 Not Found", b"")))
            await writer.drain()
        writer.close()


@asynccontextmanager
async def fake_resolver() -> AsyncIterator[FakeResolver]:
    resolver = FakeResolver()
    resolver.held.set()
    server = await asyncio.start_server(resolver.serve, HOST, 0)
    resolver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield resolver
        resolver.held.set()
