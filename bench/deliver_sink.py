"""The provider of `bench.pipeline_deliver` as a separate process that prints its port."""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

from bench.apns_sink import ApnsSink


async def main() -> None:
    folder = Path(sys.argv[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "apns.crt", folder / "apns.key")
    context.set_alpn_protocols(["h2"])
    sink = ApnsSink(context)
    print(sink.port, flush=True)
    await sink.serve()


if __name__ == "__main__":
    asyncio.run(main())
