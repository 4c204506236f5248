"""Limits of tokens and subscriptions over TLS, on each store: what is refused, and what still works at the limit."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import INSTANT, connected, running_agent
from tests.doubles.direct_devices import direct_client, direct_device, forward
from tests.doubles.ntf_harness import TEST_PROVIDER, Device, HeldFineClock, NtfHarness, ntf_router
from tests.doubles.ntf_world import StoreOpening
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import direct_settings
from tests.doubles.smp_harness import OK, QUOTA, ed25519, smp_router, until
from tocsin.agent.runtime.events import NotificationsFailed
from tocsin.ntf_router import running_router
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate, PacketKind
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription, NotifierQueue
from tocsin.protocol.ntf.token_commands import DeleteToken, ReplaceToken, VerifyToken

NOWHERE = RouterLocation((HOST,), "9", bytes(range(32)))
DIRECT: dict[str, Any] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}


def a_queue() -> NotifierQueue:
    return NotifierQueue(NOWHERE, os.urandom(24))


async def refused(device: Device, queue: NotifierQueue | None = None) -> bool:
    """Whether SNEW is answered with QUOTA."""
    command = device.subscribe_command(queue or a_queue(), ed25519())
    return await device.client.ask(command, key=device.key) == QUOTA


async def test_tokens_at_their_limit(open_store: StoreOpening) -> None:
    for start in range(2):  # the second router finds two tokens
        async with open_store() as store, ntf_router(store, max_tokens=2) as ntf:
            if start == 0:
                first, second = await ntf.active_device(b"aa"), await ntf.active_device(b"bb")
                # Known registrations go on: the same one again, another device token, another verification.
                await first.register()
                assert await first.ask(VerifyToken(await first.code())) == OK
                assert await second.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"cc"))) == OK
            late = await ntf.device()
            counters = ntf.running.state.counters
            before = counters.tokens_over_limit
            assert await late.client.ask(late.register_command(), key=late.key) == QUOTA
            assert counters.tokens_over_limit == before + 1
            if start == 1:
                again = Device(
                    await ntf.connect(), ntf.provider, b"cc", second.key, second.dh_key, second.token_id
                )
                assert await again.ask(DeleteToken()) == OK
                await late.activate()


async def test_subscriptions_of_a_token_at_their_limit(open_store: StoreOpening) -> None:
    async with open_store() as store, ntf_router(store, max_subscriptions_per_token=2) as ntf:
        device, other = await ntf.active_device(), await ntf.active_device()
        queue, key = a_queue(), ed25519()
        subscription_id = await device.subscribe(queue, key)
        await device.subscribe(a_queue(), ed25519())
        assert await refused(device)
        counters = ntf.running.state.counters
        assert (counters.subscriptions_over_token_limit, counters.subscriptions_over_limit) == (1, 0)
        assert await device.subscribe(queue, key) == subscription_id
        await other.subscribe(a_queue(), ed25519())
        assert (await device.status()).state is TokenState.ACTIVE
        assert await device.client.ask(DeleteSubscription(), subscription_id, device.key) == OK
        await device.subscribe(a_queue(), ed25519())
        assert await refused(device)


async def test_subscriptions_of_all_tokens_at_their_limit(open_store: StoreOpening) -> None:
    async with open_store() as store, ntf_router(store, max_subscriptions=2) as ntf:
        await (await ntf.active_device()).subscribe(a_queue(), ed25519())
    async with open_store() as store, ntf_router(store, max_subscriptions=2) as ntf:
        device = await ntf.active_device()
        await device.subscribe(a_queue(), ed25519())
        assert await refused(device)
        assert ntf.running.state.counters.subscriptions_over_limit == 1
        assert await device.ask(DeleteToken()) == OK
        device = await ntf.active_device()
        await device.subscribe(a_queue(), ed25519())


async def test_packets_at_the_limits(open_store: StoreOpening) -> None:
    async with (
        open_store() as store,
        ntf_router(store, max_subscriptions_per_token=2, max_subscriptions=3, **DIRECT) as ntf,
    ):
        device, other = await direct_device(ntf), await direct_device(ntf)
        forwarder = await direct_client(ntf)
        queues = [a_queue() for _ in range(3)]
        fates = [await forward(forwarder, device.packet(queue)) for queue in queues]
        assert fates == [PacketFate.ACCEPTED, PacketFate.ACCEPTED, PacketFate.BAD_QUEUE]
        assert await forward(forwarder, device.packet(queues[0])) is PacketFate.ACCEPTED
        assert await forward(forwarder, other.packet(queues[2])) is PacketFate.ACCEPTED
        assert await forward(forwarder, other.packet(a_queue())) is PacketFate.BAD_QUEUE
        counters = ntf.running.state.counters
        assert (counters.subscriptions_over_token_limit, counters.subscriptions_over_limit) == (1, 1)
        ended = device.packet(queues[0], PacketKind.DISSOCIATE)
        assert await forward(forwarder, ended) is PacketFate.ACCEPTED
        assert await forward(forwarder, other.packet(a_queue())) is PacketFate.ACCEPTED


async def test_registrations_that_nobody_verified_do_not_fill_the_store_for_ever(
    open_store: StoreOpening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_router, "EXPIRY_INTERVAL", 0.05)
    async with open_store() as store, ntf_router(store, max_tokens=3) as ntf:
        await ntf.active_device()
        for _ in range(2):
            await (await ntf.device()).register()
        late = await ntf.device()
        assert await late.client.ask(late.register_command(), key=late.key) == QUOTA
        ntf.clock.time += 86_401
        await until(lambda: ntf.running.state.counters.tokens_never_verified == 2)
        await late.activate()


@pytest.mark.parametrize("direct", [False, True])
async def test_an_agent_gives_up_a_queue_and_keeps_its_token(tmp_path: Path, direct: bool) -> None:
    """No hot loop: one refusal for a queue. The others are notified of."""
    changes = DIRECT if direct else {"direct": NtfDirectSettings(enabled=False)}
    async with (
        smp_router(direct=direct_settings()) as smp,
        ntf_router(clock=HeldFineClock(time.time()), max_subscriptions_per_token=1, **changes) as ntf,
        running_agent(tmp_path / "alice", [smp], [ntf], ntf.provider, direct=direct) as alice,
        running_agent(tmp_path / "bob", [smp], [ntf], ntf.provider) as bob,
    ):
        await connected(alice, bob)
        await connected(alice, bob)
        await alice.activate(INSTANT)
        await alice.event(NotificationsFailed)
        await alice.at_rest()
        assert _refusals(ntf) == 1
        assert ntf.running.state.counters.direct_packets_accepted == direct
        rows = await alice.store.subscriptions()
        assert sorted(row.action is None for row in rows) == [False, True]
        assert ntf.running.state.counters.tokens_created == 1
        token = await alice.store.token()
        assert token is not None
        assert token.status.state is TokenState.ACTIVE


def _refusals(ntf: NtfHarness) -> int:
    return ntf.running.state.counters.subscriptions_over_token_limit
