"""SMP routers that never answered do not keep others waiting (issue 17, defect 6)."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import SmpPlace, chat_at
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import OK, ed25519
from tocsin.clients.settings import Backoff
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import SubscriptionRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import VerifyToken
from tocsin.protocol.router_answers import Refused

INVALID = TokenStatus(TokenState.INVALID, InvalidReason.BAD)
QUOTA = Refused(ErrorCode.QUOTA)
HOSTILE_TOKENS = 5
NAMES = 20


@dataclass
class SilentPort:
    """Accepts connections and says nothing. Each key hash makes another router of it."""

    port: int = 0
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    def queue(self, host: str = HOST) -> NotifierQueue:
        return NotifierQueue(RouterLocation((host,), str(self.port), os.urandom(32)), os.urandom(24))


@asynccontextmanager
async def silent_port() -> AsyncIterator[SilentPort]:
    silent = SilentPort()

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.connections.append(writer)

    server = await asyncio.start_server(accept, HOST, 0)
    silent.port = server.sockets[0].getsockname()[1]
    try:
        yield silent
    finally:
        server.close()
        for writer in silent.connections:
            writer.transport.abort()


def subscriber(**changes: Any) -> Any:
    return replace(ntf_settings().subscriber, connect_timeout=60.0, **changes)


async def device_with_names(ntf: NtfHarness, silent: SilentPort, host: str = HOST) -> Device:
    device = await ntf.active_device()
    for number in range(NAMES):
        await device.subscribe(silent.queue(host.format(number)), ed25519())
    return device


async def test_an_honest_router_is_connected_while_tokens_name_routers_that_never_answer() -> None:
    async with (
        silent_port() as silent,
        SmpPlace().running() as smp,
        ntf_router(subscriber=subscriber(untried_dials=8, untried_dials_per_token=1)) as ntf,
    ):
        for _ in range(HOSTILE_TOKENS):
            await device_with_names(ntf, silent)
        await until(lambda: len(silent.connections) == HOSTILE_TOKENS)
        await _an_honest_router_is_connected(smp, ntf)
        assert len(silent.connections) == HOSTILE_TOKENS


@contextmanager
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names that start with `slow` are not resolved until the end; other names are this machine."""
    let_go = threading.Event()
    real = socket.getaddrinfo

    def lookup(host: Any, *args: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name.startswith("slow"):
            let_go.wait(60)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real(HOST if name.endswith(".example") else host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    try:
        yield
    finally:
        let_go.set()


async def test_an_honest_router_is_connected_while_tokens_name_hosts_that_do_not_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system resolves a few names at a time, and nobody can interrupt it."""
    threads = ThreadPoolExecutor(HOSTILE_TOKENS + 1)
    asyncio.get_running_loop().set_default_executor(threads)
    with slow_names(monkeypatch):
        async with (
            silent_port() as silent,
            SmpPlace().running() as smp,
            ntf_router(subscriber=subscriber(untried_dials=8, untried_dials_per_token=1)) as ntf,
        ):
            for token in range(HOSTILE_TOKENS):
                await device_with_names(ntf, silent, f"slow{token}-{{}}.example")
            await _an_honest_router_is_connected(smp, ntf, "honest.example")


async def _an_honest_router_is_connected(smp: Any, ntf: NtfHarness, host: str = HOST) -> None:
    chat = await chat_at(smp, await smp.connect())
    location = replace(chat.address.router, hosts=(host,))
    honest = await ntf.active_device()
    subscription_id = await honest.subscribe(
        NotifierQueue(location, chat.address.notifier_id), chat.notifier.key
    )
    await until(lambda: ntf.running.state.counters.queues_subscribed == 1)
    async with asyncio.timeout(5):
        while await honest.subscription_status(subscription_id) != SubscriptionState.ACTIVE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def invalid_device(ntf: NtfHarness) -> Device:
    """Its token was never verified: the provider refused the push with the code."""
    device = await ntf.device()
    await device.register()
    token = await ntf.store.token(device.token_id)
    assert token is not None
    await ntf.store.invalidate_token(device.token_id, token.device_token, INVALID)
    return device


async def test_routers_are_dialled_for_active_tokens_only() -> None:
    """SNEW of an invalid token is answered (ntf.md 2.5); TVFY makes the router connect."""
    async with silent_port() as silent, SmpPlace().running() as smp, ntf_router() as ntf:
        device = await invalid_device(ntf)
        chat = await chat_at(smp, await smp.connect())
        subscription_id = await device.subscribe(chat.address, chat.notifier.key)
        for _ in range(NAMES):
            await device.subscribe(silent.queue(), ed25519())
        again = await device.subscribe(chat.address, chat.notifier.key)
        assert again == subscription_id
        assert not ntf.running.subscribers.routers
        assert await device.subscription_status(subscription_id) == SubscriptionState.NEW

        code = await device.code()
        await device.register()
        assert await device.code() == code
        assert await device.ask(VerifyToken(code)) == OK
        await ntf.subscribed_queues(1)
        await until(lambda: len(silent.connections) > 0)


async def test_a_queue_is_subscribed_although_its_token_was_verified_while_it_was_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SNEW began when the token was invalid, and TVFY ended before the row was there."""
    async with SmpPlace().running() as smp, ntf_router() as ntf:
        device = await invalid_device(ntf)
        chat = await chat_at(smp, await smp.connect())
        elsewhere = replace(device, client=await ntf.connect())
        add_subscription = ntf.store.add_subscription

        async def add_later(record: SubscriptionRecord) -> bool:
            code = await elsewhere.code()
            await elsewhere.register()
            assert await elsewhere.ask(VerifyToken(code)) == OK
            return await add_subscription(record)

        monkeypatch.setattr(ntf.store, "add_subscription", add_later)
        await device.subscribe(chat.address, chat.notifier.key)
        await ntf.subscribed_queues(1)


async def test_a_start_dials_for_active_tokens_only() -> None:
    store = NtfMemoryStore()
    async with silent_port() as silent:
        async with ntf_router(store) as ntf:
            device = await invalid_device(ntf)
            await device.subscribe(silent.queue(), ed25519())
            active = await ntf.active_device()
            wanted = silent.queue()
            await active.subscribe(wanted, ed25519())
        async with ntf_router(store) as ntf:
            await ntf.running.subscribers.started.wait()
            assert set(ntf.running.subscribers.routers) == {wanted.router}
            assert ntf.running.subscribers.routers[wanted.router].state.untried


async def test_a_router_is_left_when_its_tokens_are_not_active_any_more() -> None:
    async with ntf_router() as ntf:
        device = await ntf.active_device()
        with socket.create_server((HOST, 0)) as refused:
            port = refused.getsockname()[1]
        queue = NotifierQueue(RouterLocation((HOST,), str(port), os.urandom(32)), os.urandom(24))
        await device.subscribe(queue, ed25519())
        token = await ntf.store.token(device.token_id)
        assert token is not None
        await ntf.store.invalidate_token(device.token_id, token.device_token, INVALID)
        await until(lambda: not ntf.running.subscribers.routers)


async def test_a_token_names_a_limited_number_of_routers_that_never_answered() -> None:
    async with (
        silent_port() as silent,
        SmpPlace().running() as smp,
        ntf_router(subscriber=subscriber(untried_per_token=3)) as ntf,
    ):
        device, other = await ntf.active_device(), await ntf.active_device()
        queues = [silent.queue() for _ in range(3)]
        for queue in queues:
            await device.subscribe(queue, ed25519())
        command = device.subscribe_command(silent.queue(), ed25519())
        assert await device.client.ask(command, key=device.key) == QUOTA
        assert ntf.running.state.counters.subscriptions_refused == 1

        same_router = NotifierQueue(queues[0].router, os.urandom(24))
        await device.subscribe(same_router, ed25519())
        chat = await chat_at(smp, await smp.connect())
        await other.subscribe(chat.address, chat.notifier.key)
        await ntf.subscribed_queues(1)
        known = await chat_at(smp, await smp.connect())
        await device.subscribe(known.address, known.notifier.key)
        await ntf.subscribed_queues(2)


async def test_delays_grow_from_the_first_failure_on_until_a_router_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by `make chaos`: a token with 20 hosts that refuse at once caused 20 attempts in each first interval."""
    delays: list[float] = []

    def spread(_backoff: Backoff, delay: float, _chance: float) -> float:
        delays.append(delay)
        return 0.0

    monkeypatch.setattr(Backoff, "spread", spread)
    with socket.create_server((HOST, 0)) as refused:
        port = refused.getsockname()[1]
    async with ntf_router(subscriber=subscriber(untried_maximum=1.0)) as ntf:
        device = await ntf.active_device()
        queue = NotifierQueue(RouterLocation((HOST,), str(port), os.urandom(32)), os.urandom(24))
        await device.subscribe(queue, ed25519())
        await until(lambda: len(delays) >= 7)
    assert delays[:7] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
