"""An NTF router as an SMP router sees it that forwards packets to it: real TLS, and answers as it is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.doubles.routers import HOST, make_credentials
from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConnectionLost, HandshakeRefused, HandshakeTimeout
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_messages import ForwardPacket, PacketHandled
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_ntf
from tocsin.transport.tls_contexts import server_context


class Trouble(Enum):
    """What happens to a packet instead of an answer."""

    SILENCE = auto()
    """None comes."""
    CLOSED = auto()
    """The connection is closed."""
    FAILURE = auto()
    """ERR INTERNAL."""
    NONSENSE = auto()
    """An answer of another kind."""


Behaviour = PacketFate | Trouble


@dataclass
class FakeNtfForwardee:
    location: RouterLocation
    credentials: Credentials
    behaviour: Behaviour = PacketFate.ACCEPTED
    script: deque[Behaviour] = field(default_factory=deque)
    """For the next packets, before `behaviour` counts."""
    packets: list[bytes] = field(default_factory=list)
    """As they came, repetitions included."""
    connections: int = 0
    open: int = 0
    most_waiting: int = 0
    """Packets that waited at a time behind `gate`."""
    gate: asyncio.Event | None = None
    """Answers wait for it."""
    _waiting: int = 0

    async def serve(self, connection: RouterConnection) -> None:
        self.connections += 1
        self.open += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for received in await connection.receive():
                        assert isinstance(received, ReceivedCommand), received
                        tasks.create_task(self._answer(connection, received))
        except* ConnectionLost:
            pass
        finally:
            self.open -= 1

    async def _answer(self, connection: RouterConnection, received: ReceivedCommand) -> None:
        assert isinstance(received.command, ForwardPacket), received
        self.packets.append(received.command.packet)
        behaviour = self.script.popleft() if self.script else self.behaviour
        if self.gate is not None:
            self._waiting += 1
            self.most_waiting = max(self.most_waiting, self._waiting)
            await self.gate.wait()
            self._waiting -= 1
        response: Response
        match behaviour:
            case Trouble.SILENCE:
                return
            case Trouble.CLOSED:
                connection.connection.abort()
                return
            case Trouble.FAILURE:
                response = Refused(ErrorCode.INTERNAL)
            case Trouble.NONSENSE:
                response = Done()
            case _:
                response = PacketHandled(behaviour)
        answer = connection.session.response(received.corr_id, received.entity_id, response)
        with suppress(ConnectionLost):
            await connection.send([answer])


@asynccontextmanager
async def fake_ntf_forwardee(
    behaviour: Behaviour = PacketFate.ACCEPTED,
    *,
    credentials: Credentials | None = None,
    port: int = 0,
    direct: bool = True,
) -> AsyncIterator[FakeNtfForwardee]:
    """`direct` says whether it offers direct notifications."""
    credentials = credentials or make_credentials()
    identity = RouterIdentity.create(NTF, credentials, direct=direct)

    async def handle(connection: BlockConnection) -> None:
        try:
            served = await accept_ntf(connection, identity, hello_seconds=10.0)
        except (HandshakeRefused, HandshakeTimeout):
            return
        await router.serve(served)

    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=False)
    listener = Listener(handle, context=context, block_size=NTF.block_size, hosts=[HOST], port=port)
    async with listener:
        location = RouterLocation((HOST,), str(listener.port), credentials.fingerprint)
        router = FakeNtfForwardee(location, credentials, behaviour)
        yield router
