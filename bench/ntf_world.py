"""The environment of the measured NTF router, as a separate process: SMP routers and a push provider.

Its arguments are a folder with the credentials of the first SMP router, the notifications in a block, and the number of
SMP routers.

Reads commands from its standard input, one JSON object a line, and answers each with one:

    {"rate": 5000, "seconds": 3}    send this many notifications a second, evenly
    {"count": 100000}               send this many at full speed
    {"delay": 0.05}                 the provider answers after this many seconds
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.apns_sink import ApnsSink
from bench.wire import make_credentials
from tocsin.crypto.credentials import Credentials
from tocsin.protocol.direct.smp_responses import NotificationsAcknowledged
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Pong
from tocsin.protocol.sessions import ReceivedCommand, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import (
    AcknowledgeNotifications,
    SubscribeNotifications,
    SubscribeServiceNotifications,
)
from tocsin.protocol.smp.responses import NotificationReceived, ServiceSubscribed, Subscribed
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.credential_files import read_credentials
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_smp
from tocsin.transport.tls_contexts import server_context

META = os.urandom(144)


class World:
    def __init__(self, per_block: int) -> None:
        self._per_block = per_block
        self.notifiers: list[bytes] = []
        """Notifier ids."""
        self._peers: dict[bytes, RouterConnection] = {}
        """The connection that is subscribed to each, the latest one."""

    async def handle(self, identity: RouterIdentity, connection: BlockConnection) -> None:
        peer = await accept_smp(connection, identity)
        await peer.serve(partial(self._answer, peer))

    def _answer(self, peer: RouterConnection, _session: RouterSession, received: ReceivedCommand) -> Response:
        match received.command:
            case SubscribeNotifications():
                if received.entity_id not in self._peers:
                    self.notifiers.append(received.entity_id)
                self._peers[received.entity_id] = peer
                return Subscribed()
            case SubscribeServiceNotifications():
                return ServiceSubscribed(0)
            case AcknowledgeNotifications(count):
                return NotificationsAcknowledged(count)
            case _:
                return Pong()

    async def send(self, chosen: Sequence[bytes]) -> None:
        by_peer: dict[RouterConnection, list[bytes]] = {}
        for notifier_id in chosen:
            by_peer.setdefault(self._peers[notifier_id], []).append(notifier_id)
        for peer, notifier_ids in by_peer.items():
            for start in range(0, len(notifier_ids), self._per_block):
                await peer.send(
                    [
                        peer.session.response(b"", each, NotificationReceived(os.urandom(24), META))
                        for each in notifier_ids[start : start + self._per_block]
                    ]
                )


async def obey(world: World, sink: ApnsSink, command: dict[str, Any]) -> dict[str, Any]:
    if "delay" in command:
        sink.delay = float(command["delay"])
        return {}
    if "count" in command:
        chosen = random.choices(world.notifiers, k=int(command["count"]))
        await world.send(chosen)
        return {"sent": len(chosen)}
    if "rate" not in command:
        return {}
    rate, seconds = float(command["rate"]), float(command["seconds"])
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        due = int(elapsed * rate) - sent
        if due > 0:
            await world.send(random.choices(world.notifiers, k=due))
            sent += due
        await asyncio.sleep(0.002)
    return {"sent": sent}


@asynccontextmanager
async def smp_router(world: World, credentials: Credentials) -> AsyncIterator[tuple[int, str]]:
    """Its port, and its fingerprint in hex."""
    identity = RouterIdentity.create(SMP, credentials, SMP.supported, direct=True)
    tls = server_context(credentials, alpn=identity.alpn, request_client_certificates=False)
    handle = partial(world.handle, identity)
    async with Listener(handle, context=tls, block_size=SMP.block_size, hosts=("127.0.0.1",), port=0) as smp:
        yield smp.port, credentials.fingerprint.hex()


async def main() -> None:
    folder, per_block, routers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    world = World(per_block)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "apns.crt", folder / "apns.key")
    context.set_alpn_protocols(["h2"])
    sink = ApnsSink(context)
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        identities = [read_credentials(folder), *(make_credentials() for _ in range(routers - 1))]
        places = [await stack.enter_async_context(smp_router(world, each)) for each in identities]
        tasks.create_task(sink.serve())
        print(json.dumps({"smp": places, "apns": sink.port}), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            answer = await obey(world, sink, json.loads(line))
            print(
                json.dumps({**answer, "subscribed": len(world.notifiers), "accepted": sink.accepted}),
                flush=True,
            )
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
