"""Whole conversations through proxies (smp-tests.md P8, P10, P13, P15): clients do here what agents do there."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from tests.doubles.smp_harness import (
    OK,
    Queue,
    SmpHarness,
    SmpTestClient,
    ed448,
    ed25519,
    send_command,
    smp_router,
    until,
)
from tests.doubles.smp_proxied_sender import ProxiedSender
from tests.unit.smp_router.proxy.test_proxy import NETWORK, NO_SESSION, PROXY
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import ConnectionLost
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.smp.proxy_commands import RequestProxySession
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import MessageReceived, ProxySession, Subscribed
from tocsin.protocol.smp.sender_commands import SecureQueueBySender

QUICK_TO_FORGET = replace(PROXY, remember_failure=0.0)


class Party:
    """Receives at one router and sends to a queue at another, through the first if told so."""

    def __init__(self, home: SmpHarness, client: SmpTestClient, queue: Queue, *, proxied: bool) -> None:
        self.home = home
        self.client = client
        self.queue = queue
        self.sender_key: AuthPrivateKey = ed25519()
        self._proxied = proxied
        self._sending: SmpTestClient | ProxiedSender | None = None

    @classmethod
    async def at(cls, home: SmpHarness, *, proxied: bool) -> Party:
        client = await home.connect(encrypted=True)
        return cls(home, client, await client.new_queue(), proxied=proxied)

    async def meet(self, other: Party) -> None:
        """Secures the other's queue with a key of its own."""
        self._sending = (
            await ProxiedSender.through(await self.home.connect(encrypted=True), other.home.location)
            if self._proxied
            else await other.home.connect(encrypted=True)
        )
        key = self.sender_key
        assert await self._ask(SecureQueueBySender(key.public), other.queue.sender_id, key) == OK

    async def _ask(self, command: Command, entity_id: bytes, key: AuthPrivateKey) -> Response:
        if isinstance(self._sending, ProxiedSender):
            return await self._sending.forward(command, entity_id, key)
        assert self._sending is not None
        return await self._sending.ask(command, entity_id, key)

    async def send(self, other: Party, *bodies: bytes) -> None:
        for body in bodies:
            assert await self._ask(send_command(body), other.queue.sender_id, self.sender_key) == OK

    async def receive(self, body: bytes) -> None:
        await self.client.receive(self.queue, body)

    async def receive_all(self, *bodies: bytes) -> None:
        """Each ACK may bring the next message."""
        message = await self.client.message(self.queue)
        for number, body in enumerate(bodies, 1):
            assert self.queue.body(message) == body
            answer = await self.client.acknowledge(self.queue, message)
            if number == len(bodies):
                assert answer == OK
            else:
                message = (
                    answer if isinstance(answer, MessageReceived) else await self.client.message(self.queue)
                )


def numbered(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


@pytest.mark.parametrize(("senders", "messages"), [(1, 1000), (5, 200), (10, 100)])
async def test_p8_many_messages_through_a_proxy(senders: int, messages: int) -> None:
    """Of each sender all arrive, in their order. Each has its own connections and its own queue."""
    async with smp_router(message_quota=128) as relay, smp_router(proxy=PROXY) as proxy:

        async def converse() -> None:
            recipient, client = await relay.connect(encrypted=True), await proxy.connect(encrypted=True)
            queue = await recipient.secured_queue(ed448(), ed448())
            sender = await ProxiedSender.through(client, relay.location, b"correct")
            for body in numbered(messages):
                assert await sender.forward(send_command(body), queue.sender_id, queue.sender_key) == OK
                await recipient.receive(queue, body)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(senders):
                tasks.create_task(converse())
        assert proxy.running.state.counters.proxy_forwards == 1000
        assert proxy.running.state.counters.proxy_relays_connected == 1


@pytest.mark.parametrize(
    ("servers", "first_proxied", "second_proxied"),
    [
        pytest.param(1, True, True, id="one server, always"),
        pytest.param(1, False, False, id="one server, never"),
        pytest.param(2, True, True, id="two servers, always or unknown"),
        pytest.param(2, True, False, id="two servers, first only or known server"),
        pytest.param(2, False, False, id="two servers, never"),
    ],
)
async def test_p10_a_conversation_by_way_of_proxies_or_not(
    servers: int, first_proxied: bool, second_proxied: bool
) -> None:
    """Two messages each way. When to use a proxy is the agent's decision; both ways can be mixed."""
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(smp_router(proxy=PROXY)) for _ in range(servers)]
        first = await Party.at(routers[0], proxied=first_proxied)
        second = await Party.at(routers[-1], proxied=second_proxied)
        await first.meet(second)
        await second.meet(first)
        await first.send(second, b"1", b"2")
        await second.receive_all(b"1", b"2")
        await second.send(first, b"3", b"4")
        await first.receive_all(b"3", b"4")
        forwarded = [3 * first_proxied, 3 * second_proxied]
        counted = [router.running.state.counters.proxy_forwards for router in routers]
        assert counted == (forwarded if servers == 2 else [sum(forwarded)])


async def sent_at_last(
    client: SmpTestClient, relay: RouterLocation, queue: Queue, key: AuthPrivateKey, body: bytes
) -> set[Response]:
    """Asks for a session and sends until the relay has the message; what was answered before."""
    refusals: set[Response] = set()
    while True:
        found = await client.ask(RequestProxySession(relay))
        if isinstance(found, ProxySession):
            answer = await ProxiedSender(client, found).forward(send_command(body), queue.sender_id, key)
            if answer == OK:
                return refusals
            refusals.add(answer)
        else:
            refusals.add(found)
        await asyncio.sleep(0)


async def test_p13_the_relay_is_offline_and_then_the_proxy() -> None:
    async with smp_router(proxy=QUICK_TO_FORGET) as home, AsyncExitStack() as run:
        away = await run.enter_async_context(smp_router(proxy=QUICK_TO_FORGET))
        location, store = away.location, away.store
        first, second = await Party.at(home, proxied=True), await Party.at(away, proxied=True)
        await first.meet(second)
        await second.meet(first)
        await first.send(second, b"1")
        await second.receive(b"1")
        await second.send(first, b"2")
        await first.receive(b"2")

        await run.aclose()  # the relay of the first
        client = await home.connect(encrypted=True)
        sending = asyncio.create_task(
            sent_at_last(client, location, second.queue, first.sender_key, b"while it was away")
        )
        counters = home.running.state.counters
        await until(lambda: counters.proxy_connect_errors > 0)
        away = await run.enter_async_context(
            smp_router(store, proxy=QUICK_TO_FORGET, ports=(int(location.port),))
        )
        refusals = await sending
        assert refusals
        assert refusals <= {NETWORK, NO_SESSION}
        second.client = await away.connect(encrypted=True)
        answer = await second.client.ask(Subscribe(), second.queue.recipient_id, second.queue.key)
        assert answer == Subscribed()
        await second.receive(b"while it was away")

        await run.aclose()  # the proxy of the second
        with pytest.raises(ConnectionLost):
            await second.client.ask(RequestProxySession(home.location))
        away = await run.enter_async_context(
            smp_router(store, proxy=QUICK_TO_FORGET, ports=(int(location.port),))
        )
        client = await away.connect(encrypted=True)
        assert not await sent_at_last(client, home.location, first.queue, second.sender_key, b"back again")
        await first.receive(b"back again")


@pytest.mark.parametrize(("pairs", "messages"), [(1, 250), (10, 50)])
async def test_p15_many_conversations_in_both_directions_at_once(pairs: int, messages: int) -> None:
    """The router is everybody's proxy and relay."""
    async with smp_router(proxy=PROXY, message_quota=128) as router:

        async def talk(party: Party, other: Party) -> None:
            for body in numbered(messages):
                await party.send(other, body)

        async def converse() -> None:
            first, second = await Party.at(router, proxied=True), await Party.at(router, proxied=True)
            await first.meet(second)
            await second.meet(first)
            async with asyncio.TaskGroup() as directions:
                for party, other in ((first, second), (second, first)):
                    directions.create_task(talk(party, other))
                    directions.create_task(other.receive_all(*numbered(messages)))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(pairs):
                tasks.create_task(converse())
        assert router.running.state.counters.proxy_forwards == 2 * pairs * (messages + 1)
