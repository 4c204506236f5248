"""Load that costs the sender little and the router much: the same signed commands in block after block.

A connection of a flood sends as fast as the router reads. Some never read the answers. The flood has its own process
(`python -m soak.floods`, a `Victims` as JSON on its standard input), so that honest users do not wait for it here.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import ConnectionLost, RemoteProtocolError, TransportError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.token_commands import CheckToken, RegisterToken
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.transport.client_sessions import ClientConnection, DialSettings, dial_ntf, dial_smp

ATTEMPT_SECONDS: Final = 0.5
_CORR_ID: Final = bytes(24)


class Flooding(Protocol):
    async def __call__(self, *, reads: bool) -> None: ...


class Victims(msgspec.Struct, frozen=True):
    """What the flood is about."""

    smp_address: str
    ntf_address: str
    sender_ids: list[bytes]
    recipient_ids: list[bytes]
    seed: int
    smp_connections: int
    ntf_connections: int


class Flooded(msgspec.Struct, frozen=True):
    blocks: int
    lost: int


class Flood:
    """Counts what it sent. `run` goes on until it is cancelled."""

    def __init__(self, victims: Victims) -> None:
        self._victims = victims
        self._smp_address = RouterAddress.parse(victims.smp_address)
        self._ntf_address = RouterAddress.parse(victims.ntf_address)
        self._chance = random.Random(victims.seed)
        self.blocks = 0
        self.lost = 0
        """Connections that the router ended."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._victims.smp_connections):
                tasks.create_task(self._again(self._flood_smp, reads=number % 5 != 0))
            for number in range(self._victims.ntf_connections):
                tasks.create_task(self._again(self._flood_ntf, reads=number % 5 != 0))

    async def _again(self, flood: Flooding, *, reads: bool) -> None:
        while True:
            try:
                await flood(reads=reads)
            except (TransportError, RemoteProtocolError, TimeoutError):
                self.lost += 1
            await asyncio.sleep(ATTEMPT_SECONDS)

    async def _flood_smp(self, *, reads: bool) -> None:
        connection = await dial_smp(self._smp_address, DialSettings(connect_timeout=30.0))
        wrong = self._chance.choice((Ed25519PrivateKey(os.urandom(32)), Ed448PrivateKey(os.urandom(57))))
        await self._flood(
            connection,
            [
                *(
                    (SendMessage(MessageFlags(notify=True), b"x"), each, None)
                    for each in self._victims.sender_ids
                ),
                *((Subscribe(), each, wrong) for each in self._victims.recipient_ids),
            ],
            reads=reads,
        )

    async def _flood_ntf(self, *, reads: bool) -> None:
        connection = await dial_ntf(self._ntf_address, DialSettings(connect_timeout=30.0))
        key, dh_key = Ed25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
        token = DeviceToken(PushProvider.APNS_TEST, b"flood%d" % self._chance.randrange(1000))
        await self._flood(
            connection,
            [
                *[(RegisterToken(token, key.public, dh_key.public), b"", key)] * 3,
                *((CheckToken(), os.urandom(24), key) for _ in range(10)),
            ],
            reads=reads,
        )

    async def _flood(
        self,
        connection: ClientConnection,
        commands: Sequence[tuple[Command, bytes, Ed25519PrivateKey | Ed448PrivateKey | None]],
        *,
        reads: bool,
    ) -> None:
        session = connection.session
        signed = [session.request(_CORR_ID, entity, command, key) for command, entity, key in commands]
        self._chance.shuffle(signed)
        blocks = list(session.batches(signed))
        try:
            async with asyncio.TaskGroup() as tasks:
                if reads:
                    tasks.create_task(_read_all(connection))
                while True:
                    for block in blocks:
                        await connection.send(block)
                        self.blocks += 1
        except* (ConnectionLost, RemoteProtocolError):
            raise ConnectionLost("the router ended the connection") from None
        finally:
            connection.abort()


async def _read_all(connection: ClientConnection) -> None:
    while True:
        await connection.receive()


@asynccontextmanager
async def flooding(victims: Victims) -> AsyncIterator[list[Flooded]]:
    """Flood from another process until the block is left. Afterwards the list has what was sent."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "soak.floods",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(victims) + b"\n")
    sent: list[Flooded] = []
    try:
        await process.stdin.drain()
        yield sent
    finally:
        process.stdin.close()  # which ends it
        answer, _ = await process.communicate()
        sent.append(msgspec.json.decode(answer, type=Flooded))


async def _main() -> None:
    victims = msgspec.json.decode(sys.stdin.buffer.readline(), type=Victims)
    flood = Flood(victims)
    running = asyncio.create_task(flood.run())
    await asyncio.to_thread(sys.stdin.buffer.read)
    running.cancel()
    await asyncio.wait([running])
    print(msgspec.json.encode(Flooded(flood.blocks, flood.lost)).decode())


if __name__ == "__main__":
    asyncio.run(_main())
