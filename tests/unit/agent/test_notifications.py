"""Subscriptions of connections at real routers: behaviours D1 to D11 and the rows "subscriptions" of ntf.md 8.3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import (
    INSTANT,
    PERIODIC,
    HeldAgentClock,
    NtfPlace,
    RunningAgent,
    connected,
    ntf_address,
    running_agent,
    smp_address,
)
from tests.doubles.ntf_harness import TEST_PROVIDER, NtfHarness
from tests.doubles.ntf_world import SmpPlace
from tests.doubles.smp_harness import OK, PATIENCE, SmpHarness
from tocsin.agent.runtime.events import (
    ConnectionReady,
    MessageArrived,
    NotificationsFailed,
    NotificationsReady,
    NotificationsRemoved,
    QueueRotated,
    RouterDown,
    RouterUp,
    TokenRecreated,
)
from tocsin.agent.store.records import (
    AgentConnection,
    AgentSubscription,
    AgentToken,
    NextAction,
    ReceiveQueue,
    SendQueue,
    SubscriptionPhase,
)
from tocsin.agent.subscriptions.row_changes import started
from tocsin.crypto.boxes import box_key, unseal
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import AgentError, BadBox
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState
from tocsin.protocol.smp.recipient_commands import DisableNotifications
from tocsin.wire.base64url import base64url_bytes

DAY = 86_400.0


class Scene:
    """An SMP and an NTF router, Alice whose device is woken, and Bob who writes to her."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.smp = SmpPlace()
        self.ntf = NtfPlace()
        self.clock = HeldAgentClock()

    @asynccontextmanager
    async def alice(self, smp: SmpHarness, **changes: Any) -> AsyncIterator[RunningAgent]:
        async with running_agent(
            self.path / "alice", [smp], [self.ntf.known], self.ntf.provider, clock=self.clock, **changes
        ) as alice:
            yield alice

    @asynccontextmanager
    async def bob(self, smp: SmpHarness) -> AsyncIterator[RunningAgent]:
        async with running_agent(self.path / "bob", [smp], [], self.ntf.provider) as bob:
            yield bob


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@asynccontextmanager
async def all_running(
    scene: Scene, **changes: Any
) -> AsyncIterator[tuple[SmpHarness, NtfHarness, RunningAgent, RunningAgent]]:
    async with (
        scene.smp.running() as smp,
        scene.ntf.running() as ntf,
        scene.alice(smp, **changes) as alice,
        scene.bob(smp) as bob,
    ):
        yield smp, ntf, alice, bob


async def pushed(alice: RunningAgent, at_alice: str, bob: RunningAgent, at_bob: str, body: bytes) -> None:
    """A message of Bob's wakes Alice, who receives it in one way or the other."""
    await bob.agent.connections.send(at_bob, body)
    woken = await alice.woken()
    item = woken.to_fetch[-1]
    assert item.connection_id == at_alice
    assert item.meta is not None
    await alice.event(MessageArrived, lambda event: event.body == body)


async def subscribed_at_router(ntf: NtfHarness, count: int) -> None:
    """So many NSUB of the store's subscriptions are active."""
    async with asyncio.timeout(PATIENCE):
        while ntf.running.state.counters.queues_subscribed < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


# Set-up


async def test_existing_connection_gets_a_subscription_when_the_token_is_active(scene: Scene) -> None:
    """D9: the activation of the token is a writer of the supervisor's queue."""
    async with all_running(scene) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        assert await alice.store.subscriptions() == []
        await alice.activate()
        assert (await alice.event(NotificationsReady)).connection_id == at_alice
        await subscribed_at_router(ntf, 1)
        await pushed(alice, at_alice, bob, at_bob, b"first")
        await ntf.provider.nothing(alice.device_token)


@pytest.mark.parametrize(("version", "phase"), [(18, SubscriptionPhase.KEY), (16, SubscriptionPhase.NEW)])
async def test_new_connection_has_a_subscription_from_the_start(
    scene: Scene, version: int, phase: SubscriptionPhase
) -> None:
    """With credentials in NEW, or by NKEY at an older router."""
    async with (
        scene.smp.running(highest_version=version) as smp,
        scene.ntf.running() as ntf,
        scene.alice(smp) as alice,
        scene.bob(smp) as bob,
    ):
        await alice.activate()
        await alice.at_rest()
        written = _first_row_written(alice)
        invitation = await alice.agent.connections.create()
        assert (await written).phase is phase
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        joined = await bob.agent.connections.join(invitation.text)
        await alice.event(ConnectionReady)
        await alice.woken()  # Bob's introduction
        await bob.event(ConnectionReady)
        await pushed(alice, invitation.connection_id, bob, joined, b"hello")


def _first_row_written(alice: RunningAgent) -> asyncio.Future[AgentSubscription]:
    """What the agent puts into its store first."""
    first: asyncio.Future[AgentSubscription] = asyncio.get_running_loop().create_future()
    put, add = alice.store.put_subscriptions, alice.store.add_connection

    def seen(row: AgentSubscription) -> None:
        if not first.done():
            first.set_result(row)

    async def watched_put(wanted: Sequence[AgentSubscription]) -> list[AgentSubscription]:
        seen(wanted[0])
        return await put(wanted)

    async def watched_add(
        connection: AgentConnection,
        receive: ReceiveQueue | None,
        send: SendQueue | None,
        subscription: AgentSubscription | None = None,
    ) -> None:
        if subscription is not None:
            seen(subscription)
        await add(connection, receive, send, subscription)

    alice.store.put_subscriptions = watched_put  # type: ignore[method-assign]
    alice.store.add_connection = watched_add  # type: ignore[method-assign]
    return first


async def test_D02_without_an_active_token_in_instant_mode_nothing_is_set_up(scene: Scene) -> None:
    """D2: neither by a toggle nor by the activation in periodic mode."""
    async with all_running(scene) as (_, _ntf, alice, bob):
        at_alice, _ = await connected(alice, bob)
        await alice.agent.connections.set_notifications(at_alice, False)
        await alice.agent.connections.set_notifications(at_alice, True)
        await alice.activate(PERIODIC)
        await alice.at_rest()
        assert await alice.store.subscriptions() == []
        [queue] = await alice.store.primary_queues([at_alice])
        assert queue.notifier is None


async def test_D03_deleting_resets_credentials_then_the_notifier_then_the_row(scene: Scene) -> None:
    """D3: nothing is left at the agent nor at the SMP router."""
    async with all_running(scene) as (smp, _ntf, alice, bob):
        at_alice, _ = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        [queue] = await alice.store.primary_queues([at_alice])
        assert queue.notifier is not None
        assert smp.store.queue_by_notifier(queue.notifier.notifier_id) is not None
        await alice.agent.connections.set_notifications(at_alice, False)
        await alice.event(NotificationsRemoved)
        assert await alice.store.subscriptions() == []
        assert (await alice.store.primary_queues([at_alice]))[0].notifier is None
        assert smp.store.queue_by_notifier(queue.notifier.notifier_id) is None


async def test_D09_toggle_stops_and_starts_pushes(scene: Scene) -> None:
    """D9: a toggled connection."""
    async with all_running(scene) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        await alice.agent.connections.set_notifications(at_alice, False)
        await alice.event(NotificationsRemoved)
        await bob.agent.connections.send(at_bob, b"quietly")
        await alice.event(MessageArrived)
        await ntf.provider.nothing(alice.device_token)
        await alice.agent.connections.set_notifications(at_alice, True)
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 2)
        await pushed(alice, at_alice, bob, at_bob, b"aloud")


async def test_D06_periodic_mode_deletes_all_subscriptions_and_instant_mode_makes_them_again(
    scene: Scene,
) -> None:
    """D6: by way of the pipeline; also when the token is deleted."""
    async with all_running(scene) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        assert (await alice.agent.tokens.register(alice.device, PERIODIC)).state is TokenState.ACTIVE
        await alice.event(NotificationsRemoved)
        assert await alice.store.subscriptions() == []
        await bob.agent.connections.send(at_bob, b"unheard")
        await alice.event(MessageArrived)
        await ntf.provider.nothing(alice.device_token)
        await alice.agent.tokens.register(alice.device, INSTANT)
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 2)
        await pushed(alice, at_alice, bob, at_bob, b"heard")
        await alice.agent.tokens.delete()
        await alice.event(NotificationsRemoved)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 3)
        await pushed(alice, at_alice, bob, at_bob, b"heard again")


async def test_D09_subscribing_brings_connections_to_their_settings(scene: Scene) -> None:
    """D9: each connection that is subscribed gets or loses notifications by its own setting."""
    async with all_running(scene) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        # As if the agent were killed between the setting and what follows from it.
        assert await alice.store.set_notifications(at_alice, False)
        await alice.agent.connections.subscribe([at_alice])
        await alice.event(NotificationsRemoved)
        assert await alice.store.subscriptions() == []
        assert await alice.store.set_notifications(at_alice, True)
        await alice.agent.connections.subscribe([at_alice])
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 2)
        await pushed(alice, at_alice, bob, at_bob, b"again")


async def test_D09_joined_connection_has_a_subscription(scene: Scene) -> None:
    """D9: whoever joins is notified of what the other side writes."""
    async with all_running(scene) as (_, ntf, alice, bob):
        await alice.activate()
        at_bob, at_alice = await connected(bob, alice)
        assert (await alice.event(NotificationsReady)).connection_id == at_alice
        await subscribed_at_router(ntf, 1)
        await bob.agent.connections.send(at_bob, b"welcome")
        while (await alice.woken()).to_fetch[-1].connection_id != at_alice:
            pass
        await alice.event(MessageArrived, lambda event: event.body == b"welcome")


async def test_D09_deleted_connection_leaves_no_row(scene: Scene) -> None:
    """D9: a deleted connection."""
    async with all_running(scene) as (_, _ntf, alice, bob):
        at_alice, _ = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await alice.agent.connections.delete(at_alice)
        assert await alice.store.subscriptions() == []
        with pytest.raises(AgentError):
            await alice.agent.connections.send(at_alice, b"nobody")


# What each party can read


async def test_D01_list_is_for_the_token_and_metadata_for_the_queue(scene: Scene) -> None:
    """D1: two layers, each for the one that may open it."""
    async with all_running(scene) as (smp, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"secret words")
        payload = await alice.push()
        push = parse_push_json(payload)
        assert isinstance(push, MessagePush)
        token = await alice.agent.tokens.current()
        assert token.secret is not None
        [item] = unseal_notifications(box_key(token.secret), push)
        [queue] = await alice.store.primary_queues([at_alice])
        assert queue.notifier is not None
        assert item.queue.notifier_id == queue.notifier.notifier_id
        for text in (push.sealed, payload):  # all that the provider gets
            assert queue.notifier.notifier_id not in text
            assert base64url_bytes(queue.notifier.notifier_id) not in text
        [stored] = smp.store.messages(queue.recipient_id)
        assert stored.body is not None
        assert b"secret words" not in stored.body
        with pytest.raises(BadBox):  # the NTF router gets no further
            unseal(box_key(token.secret), item.nonce, item.sealed_meta)
        plain = unseal(box_key(queue.notifier.secret), item.nonce, item.sealed_meta)
        assert b"secret words" not in plain
        await alice.agent.connections.subscribe()
        arrived = await alice.event(MessageArrived, lambda event: event.body == b"secret words")
        assert arrived.message_id in plain


# Restarts


async def test_D05_pipeline_goes_on_after_a_restart_where_it_was(scene: Scene) -> None:
    """D5: from the row that was stored before anything was done."""
    async with scene.smp.running() as smp, scene.bob(smp) as bob, scene.ntf.running():
        async with scene.alice(smp) as alice:
            at_alice, _ = await connected(alice, bob)
            await alice.activate(PERIODIC)
            token = _instant(await alice.agent.tokens.current())
            await alice.store.save_token(token)
            [queue] = await alice.store.primary_queues([at_alice])
            # As if the agent were killed when its supervisor has written the row.
            await alice.store.put_subscriptions([started(queue, token, scene.clock.exactly())])
        async with scene.alice(smp) as alice:
            await alice.event(NotificationsReady)
            await alice.at_rest()
            await alice.subscribed(1)


async def test_D05_row_waits_for_the_ntf_router_over_a_restart_of_the_agent(scene: Scene) -> None:
    """D5: the next action is in the store."""
    async with scene.smp.running() as smp, scene.bob(smp) as bob:
        async with scene.ntf.running(), scene.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await alice.activate(PERIODIC)
            await alice.store.save_token(_instant(await alice.agent.tokens.current()))
        async with scene.alice(smp) as alice:
            await _until_action(alice, NextAction.SUBSCRIBE)
        async with scene.ntf.running() as ntf, scene.alice(smp) as alice:
            await alice.event(NotificationsReady)
            await subscribed_at_router(ntf, 1)
            await alice.agent.connections.subscribe()
            await pushed(alice, at_alice, bob, at_bob, b"after all")


async def test_ntf_router_that_comes_back_is_used_without_a_restart(scene: Scene) -> None:
    async with scene.smp.running() as smp, scene.bob(smp) as bob:
        async with scene.ntf.running():
            pass
        async with scene.alice(smp) as alice:
            async with scene.ntf.running():
                await connected(alice, bob)
                await alice.activate(PERIODIC)
                await alice.store.save_token(_instant(await alice.agent.tokens.current()))
            await alice.agent.supervisor.review()
            await _until_action(alice, NextAction.SUBSCRIBE)
            async with scene.ntf.running():
                await alice.event(NotificationsReady)


async def test_pushes_go_on_after_restarts_of_the_ntf_router(scene: Scene) -> None:
    async with scene.smp.running() as smp, scene.bob(smp) as bob:
        async with scene.ntf.running() as ntf, scene.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await alice.activate()
            await alice.event(NotificationsReady)
            await subscribed_at_router(ntf, 1)
            await pushed(alice, at_alice, bob, at_bob, b"before")
        await bob.agent.connections.send(at_bob, b"while it is down")
        async with scene.ntf.running() as ntf, scene.alice(smp) as alice:
            [fetched] = await alice.fetched()
            assert [each.body for each in fetched.messages if isinstance(each, MessageArrived)] == [
                b"while it is down"
            ]
            await alice.agent.connections.subscribe()
            await pushed(alice, at_alice, bob, at_bob, b"after")


async def test_pushes_go_on_after_a_restart_of_the_smp_router(scene: Scene) -> None:
    async with scene.ntf.running() as ntf, AsyncExitStack() as first_run:
        smp = await first_run.enter_async_context(scene.smp.running())
        async with scene.alice(smp) as alice, scene.bob(smp) as bob:
            at_alice, at_bob = await connected(alice, bob)
            await alice.activate()
            await alice.event(NotificationsReady)
            await subscribed_at_router(ntf, 1)
            await pushed(alice, at_alice, bob, at_bob, b"before")
            await first_run.aclose()
            await alice.event(RouterDown)
            async with scene.smp.running():
                await alice.event(RouterUp)
                await pushed(alice, at_alice, bob, at_bob, b"after")


# Changes


async def test_changed_device_token_is_pushed_to(scene: Scene) -> None:
    async with all_running(scene) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        new = DeviceToken(TEST_PROVIDER, b"0123")
        assert (await alice.agent.tokens.register(new, INSTANT)).state is TokenState.REGISTERED
        alice.device_token = new.token
        await alice.verify()
        await pushed(alice, at_alice, bob, at_bob, b"to the new one")


async def test_D11_connections_get_pushes_at_once_after_the_token_was_lost(scene: Scene) -> None:
    """D11: not at the next check, days later (Appendix B item 29)."""
    async with scene.smp.running() as smp, scene.bob(smp) as bob:
        async with scene.ntf.running(), scene.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await alice.activate()
            await alice.event(NotificationsReady)
            [before] = await alice.store.subscriptions()
        scene.ntf.forget_everything()
        async with scene.ntf.running() as ntf, scene.alice(smp) as alice:
            await alice.agent.connections.subscribe()
            await alice.agent.tokens.register(alice.device, INSTANT)
            await alice.event(TokenRecreated)
            await alice.verify()
            await alice.event(NotificationsReady)
            [after] = await alice.store.subscriptions()
            assert (after.token_id, after.subscription_id) != (before.token_id, before.subscription_id)
            await subscribed_at_router(ntf, 1)
            await pushed(alice, at_alice, bob, at_bob, b"at once")


async def test_D10_refused_subscription_makes_the_agent_check_its_token(scene: Scene) -> None:
    """D10: without a call of the app, which is told."""
    async with scene.smp.running() as smp, scene.bob(smp) as bob:
        async with scene.ntf.running(), scene.alice(smp) as alice:
            await alice.activate()
        scene.ntf.forget_everything()
        async with scene.ntf.running(), scene.alice(smp) as alice:
            await connected(alice, bob)
            await alice.event(TokenRecreated)
            await alice.verify()
            await alice.event(NotificationsReady)


async def test_new_token_at_another_ntf_router_takes_the_connections_along(scene: Scene) -> None:
    other = NtfPlace(provider=scene.ntf.provider)
    async with (
        other.running() as new,
        scene.smp.running() as smp,
        scene.bob(smp) as bob,
        AsyncExitStack() as old_run,
    ):
        old = await old_run.enter_async_context(scene.ntf.running())
        async with scene.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await alice.activate()
            await alice.event(NotificationsReady)
            await subscribed_at_router(old, 1)
            alice.agent.tokens.set_routers([ntf_address(new)])
            await alice.agent.tokens.delete()
            await alice.activate()
            await alice.event(NotificationsReady)
            await old_run.aclose()
            await subscribed_at_router(new, 1)
            await pushed(alice, at_alice, bob, at_bob, b"by the new one")


@pytest.mark.parametrize("routers", [1, 2])
async def test_rotated_queue_is_notified_of(scene: Scene, routers: int) -> None:
    """D9: a queue that took the place of another."""
    other = SmpPlace()
    async with other.running() as second, all_running(scene) as (smp, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        await pushed(alice, at_alice, bob, at_bob, b"before")
        await alice.agent.connections.rotate(at_alice, smp_address(second if routers == 2 else smp))
        await alice.event(QueueRotated)
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 2)
        await pushed(alice, at_alice, bob, at_bob, b"after")
        [queue] = await alice.store.receive_queues(at_alice)
        assert queue.number == 2
        assert [each.number for each in await bob.store.send_queues(at_bob)] == [2]
        alice.no_trouble()
        bob.no_trouble()


async def test_50_connections_at_two_smp_routers(scene: Scene) -> None:
    other = SmpPlace()
    async with other.running() as second, all_running(scene) as (smp, ntf, alice, _bob):
        for number in range(50):
            await alice.agent.connections.create(
                subscribe=False, router=smp_address(second if number % 2 else smp)
            )
        await alice.activate()
        await alice.subscribed(50)
        await subscribed_at_router(ntf, 50)
        await alice.at_rest()
        assert not [event for event in alice.events if isinstance(event, NotificationsFailed)]


# Checks


async def test_D04_subscription_is_checked_after_a_day_and_then_every_three(scene: Scene) -> None:
    """D4: SNEW, then a check later; one that is in order is kept."""
    async with all_running(scene) as (_, ntf, alice, bob):
        await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        [row] = await alice.store.subscriptions()
        assert (row.action, row.due_at) == (NextAction.CHECK, scene.clock.time + DAY)
        await alice.at_rest()
        await scene.clock.move(DAY)
        row = await _until_status(alice, SubscriptionState.ACTIVE)
        assert row.due_at == scene.clock.time + 3 * DAY


@pytest.mark.parametrize("lost", ["notifier", "subscription"])
async def test_D04_lost_subscription_is_made_again_by_the_next_check(scene: Scene, lost: str) -> None:
    """D4: with new credentials, because SNEW alone would return the dead one (Appendix B item 14)."""
    async with all_running(scene) as (smp, ntf, alice, bob):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate()
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 1)
        [row] = await alice.store.subscriptions()
        assert row.subscription_id is not None
        await alice.at_rest()
        if lost == "subscription":
            assert await scene.ntf.store.delete_subscription(row.subscription_id)
        else:
            await _drop_notifier(smp, alice, at_alice)
            await _until_ended(scene, row.subscription_id)
        await scene.clock.move(DAY)
        await alice.event(NotificationsReady)
        await subscribed_at_router(ntf, 2)
        await pushed(alice, at_alice, bob, at_bob, b"healed")


async def test_what_was_given_up_is_tried_again_within_an_interval(scene: Scene) -> None:
    async with all_running(scene) as (smp, _ntf, alice, bob):
        at_alice, _ = await connected(alice, bob)
        [queue] = await alice.store.primary_queues([at_alice])
        record = smp.store.queue_by_recipient(queue.recipient_id)
        assert record is not None
        smp.store.delete_queue(queue.recipient_id)
        await alice.activate()
        failed = await alice.event(NotificationsFailed)
        assert (failed.connection_id, failed.action) == (at_alice, NextAction.CREATE_KEYS)
        assert [row.action for row in await alice.store.subscriptions()] == [None]
        smp.store.add_queue(record)
        await scene.clock.move(3 * DAY)
        await alice.event(NotificationsReady)


async def test_credentials_are_of_the_queue_that_is_notified_of_and_of_no_other(scene: Scene) -> None:
    """Appendix B item 15: with those of one queue at two, both at one router, the two would collide."""
    async with all_running(scene) as (_smp, ntf, alice, bob):
        at_alice, _ = await connected(alice, bob)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.unsubscribe()  # so the rotation is not finished
        await alice.agent.connections.rotate(at_alice)
        await alice.activate()
        await alice.event(NotificationsReady)
        primary, other = await alice.store.receive_queues(at_alice)
        assert primary.router == other.router
        assert (primary.number, primary.notifier is None, other.notifier) == (1, False, None)
        await subscribed_at_router(ntf, 1)


async def test_notifications_of_a_queue_that_is_gone_are_removed(scene: Scene) -> None:
    """Appendix B item 16: NDEL is refused, and there is nothing left to do; other connections do not wait."""
    async with all_running(scene) as (smp, ntf, alice, bob):
        pairs = [await connected(alice, bob) for _ in range(2)]
        await alice.activate()
        await alice.subscribed(2)
        await subscribed_at_router(ntf, 2)
        [queue] = await alice.store.primary_queues([pairs[0][0]])
        smp.store.delete_queue(queue.recipient_id)
        for name, _ in pairs:
            await alice.agent.connections.set_notifications(name, False)
        for _ in pairs:
            await alice.event(NotificationsRemoved)
        assert await alice.store.subscriptions() == []


async def _drop_notifier(smp: SmpHarness, alice: RunningAgent, connection_id: str) -> None:
    """As an SMP router that was restored from a backup."""
    [queue] = await alice.store.primary_queues([connection_id])
    client = await smp.connect()
    assert await client.ask(DisableNotifications(), queue.recipient_id, private_key_from_der(queue.key)) == OK


def _instant(token: AgentToken) -> AgentToken:
    return replace(token, mode=INSTANT)


async def _until_action(alice: RunningAgent, action: NextAction) -> None:
    async with asyncio.timeout(PATIENCE):
        while [row.action for row in await alice.store.subscriptions()] != [action]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def _until_status(alice: RunningAgent, status: SubscriptionState) -> AgentSubscription:
    async with asyncio.timeout(PATIENCE):
        while True:
            [row] = await alice.store.subscriptions()
            if row.status is status:
                return row
            await asyncio.sleep(0.005)


async def _until_ended(scene: Scene, subscription_id: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await scene.ntf.store.subscription(subscription_id)
            if found is not None and found[0].status is SubscriptionState.DELETED:
                return
            await asyncio.sleep(0.005)
