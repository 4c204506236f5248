"""An SMP router that answers as it is told, right or wrong, over real TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.doubles.ntf_harness import Device
from tests.doubles.routers import SERVICE_ID, running_router
from tests.doubles.smp_harness import credentials_at, ed25519, listens_at
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import ConnectionLost
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import EntityRule, Response
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.responses import ServiceSubscribed, Subscribed
from tocsin.transport.router_sessions import RouterConnection


class RawResponse(Response):
    """Any bytes in place of a response."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self, version: int) -> bytes:
        return self._data


Answer: TypeAlias = Callable[[ReceivedCommand], Response | None]
"""None: no answer."""


def accept(received: ReceivedCommand) -> Response:
    match received.command:
        case Ping():
            return Pong()
        case SubscribeServiceNotifications(count=count):
            return ServiceSubscribed(count)
        case _:
            return Subscribed()


@dataclass
class HostileSmp:
    location: RouterLocation
    answer: Answer = accept
    close_after: int | None = None
    """The connection is closed when so many more commands have come."""
    gate: asyncio.Event | None = None
    """What has come is answered when it is set."""
    asked: list[ReceivedCommand] = field(default_factory=list)
    sessions: list[RouterConnection] = field(default_factory=list)
    """Those that are open."""
    accepted: int = 0

    def queue(self, notifier_id: bytes) -> NotifierQueue:
        return NotifierQueue(self.location, notifier_id)

    async def subscribe(self, device: Device, notifier_id: bytes, key: AuthPrivateKey | None = None) -> bytes:
        """SNEW for a queue of this router; the subscription's id."""
        return await device.subscribe(self.queue(notifier_id), key or ed25519())

    async def tell(self, *events: tuple[bytes, Response]) -> None:
        """To the newest session, in as many blocks as needed."""
        session = self.sessions[-1]
        await session.send([session.session.response(b"", entity_id, event) for entity_id, event in events])

    async def serve(self, connection: RouterConnection) -> None:
        self.sessions.append(connection)
        self.accepted += 1
        try:
            while True:
                answers: list[bytes] = []
                for received in await connection.receive():
                    assert isinstance(received, ReceivedCommand), received
                    self.asked.append(received)
                    if self.close_after is not None:
                        self.close_after -= 1
                        if self.close_after < 0:
                            self.close_after = None
                            await self._send(connection, answers)
                            return
                    response = self.answer(received)
                    if response is not None:
                        about = b"" if response.entity is EntityRule.EMPTY else received.entity_id
                        answers.append(connection.session.response(received.corr_id, about, response))
                if self.gate is not None:
                    await self.gate.wait()
                await self._send(connection, answers)
        except ConnectionLost:
            pass
        finally:
            self.sessions.remove(connection)

    @staticmethod
    async def _send(connection: RouterConnection, answers: Sequence[bytes]) -> None:
        if answers:
            await connection.send(answers)


@asynccontextmanager
async def hostile_smp(
    answer: Answer = accept, *, port: int = 0, direct: bool = False, service_id: bytes = SERVICE_ID
) -> AsyncIterator[HostileSmp]:
    """`service_id` is what every service is called here."""
    hostile: HostileSmp | None = None

    async def serve(connection: RouterConnection) -> None:
        assert hostile is not None
        await hostile.serve(connection)

    credentials = credentials_at(port)
    async with running_router(
        serve, credentials=credentials, port=port, direct=direct, service_id=service_id
    ) as running:
        listens_at(running.address.port_number, credentials)
        hostile = HostileSmp(running.address.location, answer)
        yield hostile
        for session in list(hostile.sessions):
            session.connection.abort()
        await asyncio.sleep(0)
