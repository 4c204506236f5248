"""Connections to routers are shared, bounded, and made again when they are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from tests.doubles.agent_samples import OTHER_SMP, SMP
from tocsin.agent.runtime.router_clients import Purpose, RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.clients import ClientSettings, Event, SmpClient
from tocsin.errors import (
    BadCertificateChain,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ping import Pong
from tocsin.transport.client_sessions import DialSettings

THIRD = RouterLocation(("third.example.com",), "", bytes(32))


@dataclass
class FakeClient:
    """A connection that ends when it is told to."""

    loss: asyncio.Future[object]
    closed: bool = False

    async def events(self) -> AsyncIterator[Event]:
        while not self.loss.done():
            await asyncio.wait([self.loss])
            if self.loss.result() is not None:
                yield Event(b"", Pong())
        raise ConnectionLost("gone")


@dataclass
class Network:
    dialled: list[RouterLocation] = field(default_factory=list)
    clients: list[FakeClient] = field(default_factory=list)
    failure: Exception | None = None

    @asynccontextmanager
    async def connect(self, address: RouterAddress) -> AsyncIterator[SmpClient]:
        self.dialled.append(address.location)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        client = FakeClient(asyncio.get_running_loop().create_future())
        self.clients.append(client)
        try:
            yield cast(SmpClient, client)
        finally:
            client.closed = True


async def ignore(_router: RouterLocation, _client: SmpClient, _event: Event) -> None:
    pass


@asynccontextmanager
async def pool(network: Network, limit: int = 2, remember: float = 60.0) -> AsyncIterator[RouterClients]:
    settings = AgentSettings(
        max_connections=limit,
        remember_failure=remember,
        clients=ClientSettings(dial=DialSettings(connect_timeout=0.05)),
    )
    clients = RouterClients(settings, ignore, connect_smp=network.connect)
    yield clients
    await clients.close()
    assert all(client.closed for client in network.clients)


async def test_those_who_need_the_same_router_share_a_connection() -> None:
    network = Network()
    async with pool(network) as clients:

        async def use() -> object:
            async with clients.smp(SMP) as lease:
                await asyncio.sleep(0)
                return lease.client

        used = await asyncio.gather(*(use() for _ in range(5)))
        assert len(set(map(id, used))) == 1
        assert network.dialled == [SMP]


async def test_reading_without_subscribing_has_a_connection_of_its_own() -> None:
    network = Network()
    async with (
        pool(network) as clients,
        clients.smp(SMP) as commands,
        clients.smp(SMP, Purpose.GET) as get,
    ):
        assert commands.client is not get.client


async def test_lost_connection_is_told_and_made_again() -> None:
    network = Network()
    async with pool(network) as clients:
        async with clients.smp(SMP) as lease:
            network.clients[0].loss.set_result(None)
            await asyncio.wait([lease.lost])
            assert isinstance(lease.lost.result(), ConnectionLost)
        async with clients.smp(SMP) as lease:
            assert len(network.clients) == 2
            assert not lease.lost.done()


async def test_idle_connection_makes_room_for_another() -> None:
    network = Network()
    async with pool(network, limit=2) as clients:
        for router in (SMP, OTHER_SMP, THIRD):
            async with clients.smp(router):
                assert clients.open_connections <= 2
        assert [client.closed for client in network.clients] == [True, False, False], "least recently used"


async def test_connections_in_use_are_waited_for_not_closed() -> None:
    network = Network()
    async with pool(network, limit=1) as clients:
        async with clients.smp(SMP):
            with pytest.raises(ConnectFailed, match="in use"):
                async with clients.smp(OTHER_SMP):
                    pass
        async with clients.smp(OTHER_SMP):
            assert network.clients[0].closed


async def test_room_that_becomes_free_is_taken() -> None:
    network = Network()
    async with pool(network, limit=1) as clients:

        async def use() -> None:
            async with clients.smp(OTHER_SMP):
                pass

        async with clients.smp(SMP):
            waiting = asyncio.create_task(use())
            await asyncio.sleep(0)
        await waiting
        assert network.dialled == [SMP, OTHER_SMP]


async def test_failure_is_remembered_for_a_moment() -> None:
    network = Network(failure=ConnectFailed("refused"))
    async with pool(network, remember=60.0) as clients:
        for _ in range(3):
            with pytest.raises(ConnectFailed, match="refused"):
                async with clients.smp(SMP):
                    pass
        assert network.dialled == [SMP]


async def test_failure_is_forgotten_again() -> None:
    network = Network(failure=ConnectFailed("refused"))
    async with pool(network, remember=0.0) as clients:
        with pytest.raises(ConnectFailed):
            async with clients.smp(SMP):
                pass
        network.failure = None
        async with clients.smp(SMP):
            assert clients.open_connections == 1


async def test_failed_attempts_take_no_room() -> None:
    network = Network(failure=ConnectFailed("refused"))
    async with pool(network, limit=1, remember=0.0) as clients:
        for _ in range(3):
            with pytest.raises(ConnectFailed):
                async with clients.smp(SMP):
                    pass
        network.failure = None
        async with clients.smp(replace(SMP, port="1")):
            pass


@pytest.mark.parametrize(
    "failure", [RemoteProtocolError("nonsense"), BadCertificateChain("odd"), ValueError("odd")]
)
async def test_whatever_fails_while_connecting_is_a_connection_that_failed(failure: Exception) -> None:
    """As 7.0 (v7.md 7.2): it is temporary, so workers try again."""
    network = Network(failure=failure)
    async with pool(network) as clients:
        with pytest.raises(ConnectFailed):
            async with clients.smp(SMP):
                pass
        network.failure = None
        async with clients.smp(SMP):
            pass
