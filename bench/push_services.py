"""The push services of `bench.push` as a separate process: Apple's, Google's two and Web Push, as quick as can be.

It prints its ports as JSON. Its certificate stands for every name under `push.test` and for localhost.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Final

from bench.apns_sink import ApnsSink

ACCESS_TOKEN: Final = json.dumps({"access_token": "ya29.bench", "expires_in": 3600, "token_type": "Bearer"})
ACCEPTED: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class WebPushSink(asyncio.Protocol):
    """Accepts every HTTP/1.1 request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._data, 0, end)
            size = end + 4 + (0 if length is None else int(length[1]))
            if len(self._data) < size:
                return
            self._data = self._data[size:]
            self._transport.write(ACCEPTED)


def context_of(folder: Path, *alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "web.crt", folder / "web.key")
    context.set_alpn_protocols(list(alpn))
    return context


async def main() -> None:
    folder = Path(sys.argv[1])
    http2 = context_of(folder, "h2")
    pushes, tokens = ApnsSink(http2), ApnsSink(http2, ACCESS_TOKEN.encode())
    loop = asyncio.get_running_loop()
    web = await loop.create_server(
        WebPushSink, "127.0.0.1", 0, ssl=context_of(folder, "http/1.1"), backlog=1024
    )
    ports = {"http2": pushes.port, "tokens": tokens.port, "web": web.sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)
    await asyncio.gather(pushes.serve(), tokens.serve())


if __name__ == "__main__":
    asyncio.run(main())
