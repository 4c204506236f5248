"""Connections of the proxy to other routers: how many, for how long, and by which way (smp.md 6.7, 10.3)."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import threading
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.routers import HOST, RunningRouter, running_router
from tests.doubles.smp_harness import (
    AUTH,
    CRYPTO,
    OK,
    PATIENCE,
    Asked,
    SmpHarness,
    SmpTestClient,
    send_command,
    smp_router,
    until,
)
from tests.doubles.smp_proxied_sender import ProxiedSender
from tests.doubles.socks_proxy import SocksTestProxy, running_socks_proxy
from tests.unit.smp_router.proxy.test_proxy import NETWORK, NO_SESSION, PROXY, closed_port
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import BrokerFault, ErrorCode, ProxyBroker, ProxyProtocol
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.proxy_commands import RequestProxySession
from tocsin.protocol.smp.responses import ProxySession
from tocsin.smp_router.settings.settings import SmpProxySettings
from tocsin.transport.router_sessions import RouterConnection

NO_HOST = Refused(ProxyBroker(BrokerFault.HOST))
ONION = "o5vmywmrnaxalvz6wi3zicyftgio6psuvyniis6gco6bp6ekl4cqj4id.onion"


def proxy_with(**settings: Any) -> AbstractAsyncContextManager[SmpHarness]:
    chosen: SmpProxySettings = replace(PROXY, **settings)
    return smp_router(proxy=chosen)


async def session_at(client: SmpTestClient, relay: SmpHarness) -> ProxySession:
    return await client.expect(ProxySession, RequestProxySession(relay.location))


def held_relay(held: asyncio.Event) -> AbstractAsyncContextManager[RunningRouter]:
    """Answers forwarded commands, with an error, when it is let go."""

    async def serve(connection: RouterConnection) -> None:
        while True:
            for each in await connection.receive():
                await held.wait()
                await connection.send([connection.session.response(each.corr_id, b"", CRYPTO)])

    return running_router(serve)


def open_relays(proxy: SmpHarness) -> int:
    return proxy.running.router.proxy.relays.open


# How many


async def test_the_relay_that_was_unused_for_longest_makes_room() -> None:
    async with (
        smp_router() as first,
        smp_router() as second,
        smp_router() as third,
        proxy_with(max_relays=2) as proxy,
    ):
        client, recipient = await proxy.connect(), await first.connect()
        queue = await recipient.new_queue()
        to_first = await ProxiedSender.through(client, first.location)
        to_second = await ProxiedSender.through(client, second.location)
        assert await to_first.forward(send_command(b"1"), queue.sender_id) == OK
        to_third = await ProxiedSender.through(client, third.location)
        assert open_relays(proxy) == 2
        assert await to_second.forward(send_command(b"2"), b"queue") == NO_SESSION
        assert await to_first.forward(send_command(b"3"), queue.sender_id) == OK
        assert await to_third.forward(send_command(b"4"), b"queue") == AUTH
        await until(lambda: not second.running.router.peers)
        assert proxy.running.state.counters.proxy_relays_evicted == 1


async def test_a_relay_in_use_is_not_left_for_another() -> None:
    """Neither to make room nor because it takes longer than relays may be idle."""
    held = asyncio.Event()
    async with held_relay(held) as busy, smp_router() as other, proxy_with(max_relays=1) as proxy:
        client, another = await proxy.connect(), await proxy.connect()
        sender = await ProxiedSender.through(client, busy.address.location)
        forwarding = asyncio.create_task(sender.forward(send_command(b"hello"), b"queue"))
        counters, relays = proxy.running.state.counters, proxy.running.router.proxy.relays
        await until(lambda: counters.proxy_forwards == 1)
        assert await another.ask(RequestProxySession(other.location)) == NETWORK
        assert counters.proxy_relays_refused == 1
        relay = relays.with_session(sender.found.session_id)
        assert relay is not None
        relay.used_at = -math.inf
        relays.close_idle()
        assert relays.open == 1
        held.set()
        assert await forwarding == Refused(ProxyProtocol(ErrorCode.CRYPTO))
        assert (await session_at(another, other)).session_id != sender.found.session_id


async def test_relays_that_are_being_connected_count() -> None:
    """A client that names silent hosts takes all places, but only until they are given up."""
    with socket.create_server((HOST, 0)) as silent:
        nowhere = RouterLocation((HOST,), str(silent.getsockname()[1]), bytes(32))
        async with smp_router() as relay, proxy_with(max_relays=1, connect_timeout=1.0) as proxy:
            hostile, client = await proxy.connect(), await proxy.connect()
            asking = asyncio.create_task(hostile.ask(RequestProxySession(nowhere)))
            await until(lambda: len(proxy.running.router.proxy.relays) == 1)
            assert await client.ask(RequestProxySession(relay.location)) == NETWORK
            assert await asking == NETWORK
            await session_at(client, relay)


async def test_a_client_that_names_many_relays_does_not_exhaust_the_router() -> None:
    async with smp_router() as relay, proxy_with(max_relays=5, remember_failure=60.0) as proxy:
        hostile, client = await proxy.connect(), await proxy.connect()
        relays, most = proxy.running.router.proxy.relays, 0
        fingerprint, port = proxy.credentials.fingerprint, str(closed_port())
        for number in range(40):
            nowhere = RouterLocation((f"127.0.1.{number + 1}",), port, fingerprint)
            assert await hostile.ask(RequestProxySession(nowhere)) == NETWORK
            most = max(most, len(relays), relays.remembered_failures)
        assert most == 5
        await session_at(client, relay)


async def test_names_that_are_slow_to_resolve_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the router's files, which the loop's own threads write, nor other relays (128 names of four clients)."""
    answer, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *details: Any, **options: Any) -> Any:
        if host.endswith(".test"):
            answer.wait(PATIENCE)
            raise OSError("no such name")
        return real(host, *details, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with smp_router() as relay, proxy_with() as proxy:
        client = await proxy.connect()
        try:
            for each in range(4):
                hostile = await proxy.connect()
                names = [named(relay, f"host.slow-{each}-{number}.test") for number in range(32)]
                await hostile.send(*(Asked(RequestProxySession(name)) for name in names))
            relays = proxy.running.router.proxy.relays
            connects = 4 * proxy.running.state.settings.proxy.client_connects
            await until(lambda: len(relays) == connects)
            async with asyncio.timeout(PATIENCE / 2):
                await asyncio.to_thread(os.getpid)
                await client.expect(ProxySession, RequestProxySession(named(relay, "localhost")))
        finally:
            answer.set()


async def test_proxy_commands_of_one_block() -> None:
    """Each is answered by itself; those for one relay share its connection (smp-tests.md 12, skipped upstream)."""
    async with smp_router() as relay, proxy_with() as proxy:
        client = await proxy.connect()
        request = RequestProxySession(relay.location)
        nowhere = RequestProxySession(
            RouterLocation((HOST,), str(closed_port()), proxy.credentials.fingerprint)
        )
        sent = await client.send(Asked(request), Asked(nowhere), Asked(request), Asked(Ping()))
        answers: dict[bytes, Response] = {}
        while len(answers) < len(sent):
            answers |= {each.corr_id: each.response for each in await client.block()}
        first, missing, second, pong = (answers[corr_id] for corr_id in sent)
        assert isinstance(first, ProxySession)
        assert (second, missing, pong) == (first, NETWORK, Pong())
        assert proxy.running.state.counters.proxy_relays_connected == 1


async def test_a_failure_is_remembered() -> None:
    async with proxy_with(remember_failure=60.0) as proxy:
        client, port = await proxy.connect(), closed_port()
        location = RouterLocation((HOST,), str(port), proxy.credentials.fingerprint)
        assert await client.ask(RequestProxySession(location)) == NETWORK
        async with smp_router(ports=(port,)) as relay:
            assert await client.ask(RequestProxySession(location)) == NETWORK
            assert not relay.running.router.peers


# For how long


async def test_relays_that_nobody_uses_are_left() -> None:
    async with smp_router() as relay, proxy_with(relay_idle=1.0) as proxy:
        client, recipient = await proxy.connect(), await relay.connect()
        queue = await recipient.new_queue()
        sender = await ProxiedSender.through(client, relay.location)
        counters = proxy.running.state.counters
        await until(lambda: counters.proxy_relays_closed_idle == 1)
        await until(lambda: len(relay.running.router.peers) == 1)
        assert open_relays(proxy) == 0
        assert await sender.forward(send_command(b"hello"), queue.sender_id) == NO_SESSION
        sender = await ProxiedSender.through(client, relay.location)
        assert await sender.forward(send_command(b"hello"), queue.sender_id) == OK


async def test_relays_that_are_used_stay() -> None:
    async with smp_router(message_quota=128) as relay, proxy_with(relay_idle=60.0) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, relay.location)
        proxy.running.router.proxy.relays.close_idle()
        assert await sender.forward(send_command(b"hello"), b"queue") == AUTH
        assert open_relays(proxy) == 1
        assert (await session_at(client, relay)).session_id == sender.found.session_id


# By which way


def named(relay: SmpHarness, *hosts: str) -> RouterLocation:
    return replace(relay.location, hosts=hosts)


async def test_a_relay_is_reached_through_a_socks_proxy() -> None:
    async with (
        smp_router() as relay,
        running_socks_proxy(SocksTestProxy(relay.running.ports[0])) as socks,
        proxy_with(socks_proxy=f"{HOST}:{socks.port}") as proxy,
    ):
        recipient, client = await relay.connect(), await proxy.connect()
        queue = await recipient.new_queue()
        sender = await ProxiedSender.through(client, named(relay, ONION))
        assert await sender.forward(send_command(b"hello"), queue.sender_id) == OK
        assert queue.body(await recipient.message(queue)) == b"hello"
        assert [name for _, name, _ in socks.requests] == [ONION.encode()]


async def test_an_onion_relay_without_a_socks_proxy_cannot_be_reached() -> None:
    async with smp_router() as relay, proxy_with() as proxy:
        client = await proxy.connect()
        assert await client.ask(RequestProxySession(named(relay, ONION))) == NETWORK
        await client.expect(ProxySession, RequestProxySession(named(relay, ONION, HOST)))


LOOPBACK = bytes((127, 0, 0, 1))


@pytest.mark.parametrize(
    ("settings", "hosts", "asked_for"),
    [
        pytest.param({}, [ONION, HOST], [], id="public first, and those directly"),
        pytest.param({"socks_onion_only": False}, [ONION, HOST], [LOOPBACK], id="public first, by SOCKS"),
        pytest.param({"prefer_onion": True}, [HOST, ONION], [ONION.encode()], id="onion first"),
        pytest.param({"prefer_onion": True}, [HOST], [], id="onion first where there is one"),
        pytest.param({"required_host_mode": True}, [ONION, HOST], [], id="public only"),
        pytest.param({"required_host_mode": True}, [ONION], None, id="public only, and there is none"),
        pytest.param({"prefer_onion": True, "required_host_mode": True}, [HOST], None, id="onion only"),
    ],
)
async def test_host_modes(settings: dict[str, bool], hosts: list[str], asked_for: list[bytes] | None) -> None:
    """What the SOCKS proxy was asked for; None where no host may be tried."""
    async with (
        smp_router() as relay,
        running_socks_proxy(SocksTestProxy(relay.running.ports[0])) as socks,
        proxy_with(socks_proxy=f"{HOST}:{socks.port}", **settings) as proxy,
    ):
        client = await proxy.connect()
        request = RequestProxySession(named(relay, *hosts))
        if asked_for is None:
            assert await client.ask(request) == NO_HOST
        else:
            await client.expect(ProxySession, request)
        assert [name for _, name, _ in socks.requests] == (asked_for or [])


async def test_relays_at_private_addresses_are_refused_unless_the_operator_allows_them() -> None:
    """Clients must not probe the operator's network through the proxy."""
    async with smp_router() as relay, smp_router(proxy=SmpProxySettings()) as proxy:
        client = await proxy.connect()
        for host in (HOST, "localhost", "::1", "::ffff:127.0.0.1"):
            assert await client.ask(RequestProxySession(named(relay, host))) == NETWORK
        assert relay.running.listeners[0].counts.accepted == 0


async def test_private_addresses_are_not_asked_for_at_a_socks_proxy_either() -> None:
    """The SOCKS proxy may stand in the operator's network too."""
    async with (
        smp_router() as relay,
        running_socks_proxy(SocksTestProxy(relay.running.ports[0])) as socks,
        proxy_with(
            public_relays_only=True, socks_proxy=f"{HOST}:{socks.port}", socks_onion_only=False
        ) as proxy,
    ):
        client = await proxy.connect()
        for host in (HOST, "localhost", "10.0.0.1", "a.internal"):
            assert await client.ask(RequestProxySession(named(relay, host))) == NETWORK
        assert socks.requests == []
        await client.expect(ProxySession, RequestProxySession(named(relay, "relay.example")))


@pytest.mark.parametrize(
    ("domains", "own"), [((), 0), (("localhost",), 1), ((".localhost",), 0), (("host",), 0)]
)
async def test_own_relays_are_counted_separately(domains: tuple[str, ...], own: int) -> None:
    async with smp_router() as relay, proxy_with(own_server_domains=domains) as proxy:
        client = await proxy.connect()
        sender = await ProxiedSender.through(client, named(relay, "localhost"))
        await sender.forward(send_command(b"hello"), b"queue")
        counters = proxy.running.state.counters
        assert (counters.proxy_requests, counters.proxy_forwards) == (1, 1)
        assert (counters.proxy_requests_own, counters.proxy_forwards_own) == (own, own)
