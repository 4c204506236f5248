"""Sessions that follow one another."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tests.doubles.client_counters import ClientCounters
from tests.doubles.routers import make_credentials, running_router, serve_anything
from tocsin.clients import Backoff, ClientSettings, NtfClient, SmpClient
from tocsin.errors import ConnectionLost
from tocsin.protocol.ntf.dialect import NTF
from tocsin.transport.router_sessions import RouterConnection

QUICK = ClientSettings(backoff=Backoff(initial=0.01, increase_after=0.1, maximum=0.05))


async def test_a_lost_session_is_followed_by_a_new_one() -> None:
    connections = 0

    async def serve(connection: RouterConnection) -> None:
        nonlocal connections
        connections += 1
        if connections > 2:
            await serve_anything(connection)

    async with (
        running_router(serve) as router,
        aclosing(SmpClient.sessions(router.address, QUICK)) as sessions,
    ):
        async for client in sessions:
            try:
                await client.ping()
                break
            except ConnectionLost:
                continue
    assert connections == 3


async def test_a_router_that_is_down_is_tried_again_until_it_is_back() -> None:
    credentials = make_credentials()
    failures = asyncio.Semaphore(0)

    class Counters(ClientCounters):
        def connect_failed(self, router: str, error: Exception) -> None:
            failures.release()

    counters = Counters()
    async with running_router(dialect=NTF, credentials=credentials) as router:
        address = router.address
    sessions = NtfClient.sessions(address, QUICK, metrics=counters)
    waiting = asyncio.ensure_future(anext(sessions))
    await failures.acquire()
    await failures.acquire()
    async with running_router(dialect=NTF, credentials=credentials, port=address.port_number):
        await (await waiting).ping()
        await sessions.aclose()
    assert counters.connections == 1
