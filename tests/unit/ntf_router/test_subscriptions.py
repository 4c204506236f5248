"""Subscribing to queues: SNEW, SCHK, SDEL, and their lifecycle at the SMP router (ntf.md 4.3, 4.5, 8.2)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import (
    Device,
    NtfHarness,
    ntf_router,
    ntf_settings,
    queue_at,
    until,
)
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    Notifier,
    Queue,
    SmpHarness,
    ed448,
    ed25519,
    smp_router,
    x25519,
)
from tocsin.clients import SmpClient
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
)
from tocsin.protocol.ntf.token_commands import DeleteToken
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.recipient_commands import DeleteQueue, DisableNotifications
from tocsin.transport.client_sessions import ServiceIdentity


@asynccontextmanager
async def both_routers() -> AsyncIterator[tuple[SmpHarness, NtfHarness]]:
    async with smp_router() as smp, ntf_router() as ntf:
        yield smp, ntf


async def notified_queue(smp: SmpHarness) -> tuple[Queue, Notifier]:
    client = await smp.connect()
    queue = await client.secured_queue()
    return queue, await client.enable_notifications(queue)


async def becomes(device: Device, subscription_id: bytes, status: SubscriptionStatus) -> None:
    async with asyncio.timeout(5):
        while await device.subscription_status(subscription_id) != status:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_a_subscription_becomes_active() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_only_an_active_token_can_subscribe() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.device()
        await device.register()
        command = device.subscribe_command(queue_at(smp, notifier), notifier.key)
        assert await device.client.ask(command, key=device.key) == AUTH


async def test_N03_subscribing_twice_gives_the_same_id() -> None:
    """N3: with the same notifier key; another one is refused."""
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        queue = queue_at(smp, notifier)
        first = await device.subscribe(queue, notifier.key)
        assert await device.subscribe(queue, notifier.key) == first
        assert ntf.running.state.counters.subscriptions_created == 1
        other_key = device.subscribe_command(queue, ed25519())
        assert await device.client.ask(other_key, key=device.key) == AUTH


async def test_a_queue_of_one_token_cannot_be_taken_by_another() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device, thief = await ntf.active_device(), await ntf.active_device()
        queue = queue_at(smp, notifier)
        subscription_id = await device.subscribe(queue, notifier.key)
        command = thief.subscribe_command(queue, notifier.key)
        assert await thief.client.ask(command, key=thief.key) == AUTH
        for stolen in (CheckSubscription(), DeleteSubscription()):
            assert await thief.client.ask(stolen, subscription_id, thief.key) == AUTH
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_a_deleted_subscription_is_gone_and_can_be_made_again() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        queue = queue_at(smp, notifier)
        first = await device.subscribe(queue, notifier.key)
        assert await device.client.ask(DeleteSubscription(), first, device.key) == OK
        assert await device.client.ask(CheckSubscription(), first, device.key) == AUTH
        assert await device.client.ask(DeleteSubscription(), first, device.key) == AUTH
        second = await device.subscribe(queue, notifier.key)
        assert second != first
        await becomes(device, second, SubscriptionState.ACTIVE)


async def test_deleting_a_token_deletes_its_subscriptions() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
        assert await device.ask(DeleteToken()) == OK
        assert await device.client.ask(CheckSubscription(), subscription_id, device.key) == AUTH
        assert (await ntf.store.counts()).subscriptions == 0


async def test_a_wrong_notifier_key_ends_as_auth() -> None:
    async with both_routers() as (smp, ntf):
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue_at(smp, notifier), ed25519())
        await becomes(device, subscription_id, SubscriptionState.AUTH)


@pytest.mark.parametrize("command", [DeleteQueue(), DisableNotifications()])
async def test_N15_a_deleted_queue_is_told_as_deleted(command: DeleteQueue | DisableNotifications) -> None:
    """N15: DELD, whether the queue or its notifier went."""
    async with both_routers() as (smp, ntf):
        queue, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)
        assert await (await smp.connect()).ask(command, queue.recipient_id, queue.key) == OK
        await becomes(device, subscription_id, SubscriptionState.DELETED)


async def test_N05_another_subscriber_ends_a_subscription() -> None:
    """N5: an END of the current session counts."""
    async with smp_router() as smp, ntf_router(subscriber=individually()) as ntf:
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)
        rival = await smp.connect()
        await rival.subscribe_notifier(notifier)
        await becomes(device, subscription_id, SubscriptionState.END)


def individually() -> object:
    """Subscriber settings without service certificates."""
    return replace(ntf_settings().subscriber, use_service_credentials=False)


async def test_a_lost_connection_makes_subscriptions_inactive_until_it_is_back() -> None:
    async with ntf_router(subscriber=individually()) as ntf:
        async with smp_router() as smp:
            _, notifier = await notified_queue(smp)
            device = await ntf.active_device()
            queue = queue_at(smp, notifier)
            subscription_id = await device.subscribe(queue, notifier.key)
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)
            store, port = smp.store, smp.running.ports[0]
        await becomes(device, subscription_id, SubscriptionState.INACTIVE)
        async with smp_router(store, ports=(port,)):
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_N06_a_queue_is_subscribed_when_its_router_comes_up() -> None:
    """N6: SNEW while the SMP router is down is answered at once; nothing is left NEW for good."""
    async with ntf_router() as ntf:
        async with smp_router() as smp:
            _, notifier = await notified_queue(smp)
            store, port, queue = smp.store, smp.running.ports[0], queue_at(smp, notifier)
        device = await ntf.active_device()
        subscription_id = await device.subscribe(queue, notifier.key)
        assert await device.subscription_status(subscription_id) == SubscriptionState.NEW
        async with smp_router(store, ports=(port,)):
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_many_queues_of_several_tokens_are_subscribed_in_batches() -> None:
    async with both_routers() as (smp, ntf):
        client = await smp.connect()
        device, other = await ntf.active_device(), await ntf.active_device()
        for number in range(40):
            notifier = await client.enable_notifications(await client.secured_queue())
            await (device, other)[number % 2].subscribe(queue_at(smp, notifier), notifier.key)
        await ntf.subscribed_queues(40)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.1.1",
        "::1",
        "fe80::1",
        "router",
        "a.local",
    ],
)
async def test_an_address_that_is_not_public_is_not_dialled(host: str) -> None:
    """The reference dials whatever a client names (Appendix B 24)."""
    async with ntf_router(subscriber=replace(ntf_settings().subscriber, allow_private_hosts=False)) as ntf:
        device = await ntf.active_device()
        queue = NotifierQueue(RouterLocation((host,), "5223", bytes(32)), os.urandom(24))
        answer = await device.client.ask(device.subscribe_command(queue, ed25519()), key=device.key)
        assert isinstance(answer, Refused)
        assert answer.error is CommandFault.PROHIBITED
        assert not ntf.running.subscribers.routers


async def test_a_token_can_name_a_limited_number_of_routers() -> None:
    settings = replace(ntf_settings().subscriber, routers_per_token=2)
    async with ntf_router(subscriber=settings) as ntf:
        device = await ntf.active_device()
        answers = []
        for number in range(3):
            queue = NotifierQueue(
                RouterLocation(("127.0.0.1",), str(1000 + number), bytes(32)), os.urandom(24)
            )
            answers.append(
                await device.client.ask(device.subscribe_command(queue, ed25519()), key=device.key)
            )
        assert answers[2] == Refused(ErrorCode.QUOTA)
        more = NotifierQueue(RouterLocation(("127.0.0.1",), "1000", bytes(32)), os.urandom(24))
        await device.subscribe(more, ed25519())  # one more at a router that it has


async def test_many_subscriptions_at_once_do_not_hang() -> None:
    """The reference hangs for good with as many as its pool has connections (Appendix B 23)."""
    async with both_routers() as (smp, ntf):
        device = await ntf.active_device()

        async def subscribe() -> None:
            own = replace(device, client=await ntf.connect())
            _, notifier = await notified_queue(smp)
            await own.subscribe(queue_at(smp, notifier), notifier.key)

        await asyncio.gather(*(subscribe() for _ in range(25)))
        await ntf.subscribed_queues(25)


async def test_N07_a_router_that_no_longer_knows_services_is_subscribed_one_by_one() -> None:
    """N7: it takes our certificate no longer, so the association goes and every queue gets an NSUB of its own."""
    async with ntf_router() as ntf:
        async with smp_router() as smp:
            _, notifier = await notified_queue(smp)
            device = await ntf.active_device()
            subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)
            used = await ntf.store.used_router(smp.location)
            assert used is not None
            assert used.service_id is not None
            assert (used.associated_count, used.individual_count) == (1, 0)
            store, port = smp.store, smp.running.ports[0]
        async with smp_router(store, ports=(port,), accept_service_credentials=False) as smp:
            await until(lambda: ntf.running.state.counters.services_forgotten == 1)
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)
            used = await ntf.store.used_router(smp.location)
            assert used is not None
            assert used.service_id is None
            assert (used.associated_count, used.individual_count) == (0, 1)


async def test_a_router_that_does_not_ask_for_certificates_is_not_told_of_our_service() -> None:
    """Issue 18, row 2: it answered BAD_AUTH, and the next attempt came after the delay of lost connections."""
    settings = replace(ntf_settings().subscriber, reconnect_initial=3600.0, reconnect_maximum=7200.0)
    async with ntf_router(subscriber=settings) as ntf, smp_router(accept_service_credentials=False) as smp:
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        before = smp.running.listeners[0].counts.accepted
        await becomes(
            device, await device.subscribe(queue_at(smp, notifier), notifier.key), SubscriptionState.ACTIVE
        )
        assert smp.running.listeners[0].counts.accepted == before + 1, "it was told, and refused"


async def test_a_router_that_refuses_our_service_is_subscribed_one_by_one_at_once() -> None:
    """It knows our certificate in another role: BAD_SERVICE."""
    settings = replace(ntf_settings().subscriber, reconnect_initial=3600.0, reconnect_maximum=7200.0)
    async with ntf_router(subscriber=settings) as ntf, smp_router() as smp:
        address = RouterAddress(Scheme.SMP, smp.location)
        rival = ServiceIdentity(ntf.credentials, ServiceRole.PROXY)
        async with SmpClient.connect(address, service=rival):
            pass
        _, notifier = await notified_queue(smp)
        device = await ntf.active_device()
        await becomes(
            device, await device.subscribe(queue_at(smp, notifier), notifier.key), SubscriptionState.ACTIVE
        )


async def test_a_service_is_resubscribed_with_one_command() -> None:
    async with ntf_router() as ntf:
        async with smp_router() as smp:
            device = await ntf.active_device()
            for _ in range(5):
                _, notifier = await notified_queue(smp)
                await device.subscribe(queue_at(smp, notifier), notifier.key)
            await ntf.subscribed_queues(5)
            store, port = smp.store, smp.running.ports[0]
        async with smp_router(store, ports=(port,)) as smp:
            await until(lambda: smp.running.state.counters.notifier_service_subscriptions == 1)
            assert smp.running.state.counters.notifier_subscriptions == 0
            [subscriber] = ntf.running.subscribers.routers.values()
            await until(lambda: subscriber.state.service_count == 5)
            assert subscriber.state.drift == 0


@pytest.mark.parametrize(("version", "words"), [(18, "the count agrees"), (19, "count and hash agree")])
async def test_the_log_says_that_a_router_is_back_and_agrees(
    version: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 18, row 6: the log named troubles only, not their end. Since v19 routers compare hashes, too."""
    caplog.set_level(logging.INFO, "tocsin.ntf_router")
    settings = replace(ntf_settings().subscriber, highest_version=version)
    async with ntf_router(subscriber=settings) as ntf:
        async with smp_router(highest_version=version) as smp:
            device = await ntf.active_device()
            for _ in range(3):
                _, notifier = await notified_queue(smp)
                await device.subscribe(queue_at(smp, notifier), notifier.key)
            await ntf.subscribed_queues(3)
            store, port = smp.store, smp.running.ports[0]
        async with smp_router(store, ports=(port,), highest_version=version):
            await until(lambda: any("count" in line for line in caplog.messages))
    name = f"127.0.0.1:{port}"
    assert f"{name}: connected" in caplog.messages
    assert f"{name}: connected again" in caplog.messages
    assert f"{name}: our service is subscribed to 3 queues; {words} with ours" in caplog.messages


async def test_N18_another_number_of_queues_than_expected_is_drift() -> None:
    """N18: counted, and repaired by `reconcile` (tests/adversity/test_drift_end_to_end.py)."""
    async with ntf_router() as ntf:
        async with smp_router() as smp:
            device = await ntf.active_device()
            notifiers = []
            for _ in range(3):
                _, notifier = await notified_queue(smp)
                notifiers.append(notifier)
                await device.subscribe(queue_at(smp, notifier), notifier.key)
            await ntf.subscribed_queues(3)
            store, port = smp.store, smp.running.ports[0]
        for queue in [store.queue_by_notifier(notifiers[0].notifier_id)]:
            assert queue is not None
            store.delete_queue(queue.recipient_id)
        async with smp_router(store, ports=(port,)):
            await until(lambda: ntf.running.state.counters.service_drifts == 1)
            [subscriber] = ntf.running.subscribers.routers.values()
            assert subscriber.state.drift == -1


async def test_the_key_of_a_notifier_can_be_of_any_kind() -> None:
    async with both_routers() as (smp, ntf):
        device = await ntf.active_device()
        client = await smp.connect()
        keys: list[AuthPrivateKey] = [ed25519(), ed448(), x25519()]
        for key in keys:
            notifier = await client.enable_notifications(await client.secured_queue(), key)
            subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)
