"""Workers and supervisor next to routers in memory: holding, failing, being overtaken, and being many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import INSTANT, RunningAgent
from tests.doubles.agent_samples import NTF, SMP
from tests.doubles.fake_routers import FakeNtfClient, FakeWorld, Fault
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import until
from tocsin.agent import Agent, AgentSettings
from tocsin.agent.runtime.events import (
    NotificationsFailed,
    NotificationsReady,
    NotificationsRemoved,
    TokenRecreated,
)
from tocsin.agent.store.records import NextAction, SubscriptionPhase
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.clients import Backoff
from tocsin.clients.requests import Answer, Request
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.ntf.statuses import TokenState


class RecordingClock:
    """Waits of retries take no time and are written down; others never end."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def exactly(self) -> float:
        return 1_700_000_000.0

    async def wait(self, seconds: float) -> None:
        if seconds > 1000:
            await asyncio.Event().wait()
        self.waits.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def agent_in(
    world: FakeWorld, path: Path, clock: RecordingClock | None = None, executor: Any = None, **changes: Any
) -> AsyncIterator[RunningAgent]:
    settings = AgentSettings(
        smp_routers=(RouterAddress(Scheme.SMP, SMP),),
        ntf_routers=(RouterAddress(Scheme.NTF, NTF),),
        remember_failure=0.0,
        **{"direct": False, "retries": Backoff(initial=0.001, maximum=0.001), **changes},
    )
    async with (
        opened_agent_store(path, executor=executor) as store,
        Agent(
            store,
            settings,
            clock=clock or RecordingClock(),
            connect_smp=world.connect_smp,
            connect_ntf=world.connect_ntf,
        ) as agent,
    ):
        yield RunningAgent(agent, store, RecordingProvider(), path.name.encode().hex().encode())


async def activated(world: FakeWorld, alice: RunningAgent) -> None:
    await alice.agent.tokens.register(alice.device, INSTANT)
    await alice.agent.wake(world.pushes.popleft())


async def waiting(world: FakeWorld, alice: RunningAgent) -> str:
    """A connection whose row waits for the SMP router, with an active token."""
    invitation = await alice.agent.connections.create(subscribe=False)
    await alice.agent.tokens.register(alice.device, INSTANT)
    world.smp_down = True
    await alice.agent.wake(world.pushes.popleft())
    await alice.agent.supervisor.decided()
    return invitation.connection_id


async def notifier_of(world: FakeWorld, alice: RunningAgent, connection_id: str) -> bytes | None:
    """What the SMP router has."""
    [queue] = await alice.store.primary_queues([connection_id])
    return world.queues[queue.recipient_id]


async def test_delays_between_retries_grow_to_their_maximum(tmp_path: Path) -> None:
    world, clock = FakeWorld(), RecordingClock()
    retries = Backoff(initial=2.0, increase_after=10.0, maximum=180.0, jitter=0.0)
    async with agent_in(world, tmp_path / "a", clock, retries=retries) as alice:
        await waiting(world, alice)
        await until(lambda: len(clock.waits) >= 20)
        world.smp_down = False
        await alice.event(NotificationsReady)
    assert clock.waits[:7] == [2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.5]
    assert clock.waits[19] == 180.0


async def test_D02_row_waits_for_an_active_token_and_then_goes_on(tmp_path: Path) -> None:
    """D2: a token that is no longer active stops what is under way."""
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        connection_id = await waiting(world, alice)
        for token in world.tokens.values():
            token.state = TokenState.INVALID
        assert (await alice.agent.tokens.check()).state is TokenState.INVALID
        await alice.at_rest()
        world.smp_down = False
        alice.agent.supervisor.kick_smp(SMP)
        await alice.at_rest()
        assert await notifier_of(world, alice, connection_id) is None
        await alice.agent.tokens.register(alice.device, INSTANT)
        await alice.agent.wake(world.pushes.popleft())
        await alice.event(NotificationsReady)
        assert await notifier_of(world, alice, connection_id) is not None


async def test_deletion_goes_on_after_a_restart_without_a_token(tmp_path: Path) -> None:
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        await activated(world, alice)
        connection_id = (await alice.agent.connections.create(subscribe=False)).connection_id
        await alice.event(NotificationsReady)
        world.smp_down = True
        await alice.agent.tokens.delete()
        await alice.agent.supervisor.decided()
        assert [row.action for row in await alice.store.subscriptions()] == [NextAction.DELETE_KEYS]
    world.smp_down = False
    async with agent_in(world, tmp_path / "a") as alice:
        await alice.event(NotificationsRemoved)
        assert await notifier_of(world, alice, connection_id) is None


async def test_subscriptions_of_a_token_that_was_deleted_just_before_a_crash_go(tmp_path: Path) -> None:
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        await activated(world, alice)
        connection_id = (await alice.agent.connections.create(subscribe=False)).connection_id
        await alice.event(NotificationsReady)
        await alice.store.remove_token(delete_at_router=True, now=1)  # and the supervisor never hears of it
    async with agent_in(world, tmp_path / "a") as alice:
        await alice.event(NotificationsRemoved)
        assert await notifier_of(world, alice, connection_id) is None
        assert await alice.store.subscriptions() == []


async def test_permanent_error_ends_in_an_event_and_the_next_start_tries_again(tmp_path: Path) -> None:
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        connection_id = await waiting(world, alice)
        world.faults.append(Fault.REFUSED)
        world.smp_down = False
        failed = await alice.event(NotificationsFailed)
        assert (failed.connection_id, failed.action) == (connection_id, NextAction.CREATE_KEYS)
        [row] = await alice.store.subscriptions()
        assert (row.action, row.phase) == (None, SubscriptionPhase.NEW)
    async with agent_in(world, tmp_path / "a") as alice:
        await alice.event(NotificationsReady)


async def test_rows_that_fail_for_now_do_not_hold_up_the_others(tmp_path: Path) -> None:
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a", batch_size=2) as alice:
        names = [(await alice.agent.connections.create(subscribe=False)).connection_id for _ in range(7)]
        queues = await alice.store.primary_queues(sorted(names))
        world.broken = {queue.recipient_id for queue in queues[:3]}
        await activated(world, alice)
        ready = {(await alice.event(NotificationsReady)).connection_id for _ in range(4)}
        assert ready == {queue.connection_id for queue in queues[3:]}
        world.broken = set()
        for _ in range(3):
            await alice.event(NotificationsReady)


async def test_action_that_the_supervisor_replaced_while_it_ran_stays_replaced(tmp_path: Path) -> None:
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        connection_id = (await alice.agent.connections.create(subscribe=False)).connection_id
        world.gate = asyncio.Event()
        await activated(world, alice)
        await until(lambda: world.asked == 1)  # NKEY has arrived
        await alice.agent.connections.set_notifications(connection_id, False)
        await alice.agent.supervisor.decided()
        world.gate.set()
        await alice.event(NotificationsRemoved)
        await alice.at_rest()
        assert await alice.store.subscriptions() == []
        assert await notifier_of(world, alice, connection_id) is None
        assert not [event for event in alice.events if isinstance(event, NotificationsReady)]


async def test_D06_commands_that_wait_are_forgotten_with_the_instant_mode(tmp_path: Path) -> None:
    """D6: nothing is set up for a connection whose command came before."""
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a") as alice:
        connection_id = (await alice.agent.connections.create(subscribe=False)).connection_id
        await activated(world, alice)
        await alice.event(NotificationsReady)
        await alice.agent.connections.set_notifications(connection_id, False)
        await alice.event(NotificationsRemoved)
        await alice.agent.supervisor.create([connection_id])
        await alice.agent.supervisor.remove_all()
        await alice.agent.supervisor.decided()
        await alice.at_rest()
        assert await alice.store.subscriptions() == []
        assert await notifier_of(world, alice, connection_id) is None


async def test_D11_subscriptions_of_a_lost_token_are_made_again_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: all of them at once after the new token is active, paced."""
    sizes: list[int] = []
    request_all = FakeNtfClient.request_all

    def counting(client: FakeNtfClient, requests: Iterable[Request]) -> AsyncIterator[Answer]:
        asked = list(requests)
        sizes.append(len(asked))
        return request_all(client, asked)

    monkeypatch.setattr(FakeNtfClient, "request_all", counting)
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a", batch_size=3) as alice:
        for _ in range(10):
            await alice.agent.connections.create(subscribe=False)
        await activated(world, alice)
        await alice.subscribed(10)
        world.tokens.clear()
        sizes.clear()
        await activated(world, alice)
        await alice.event(TokenRecreated)
        [(token_id, token)] = world.tokens.items()
        await until(lambda: len(token.subscriptions) == 10)
        await alice.at_rest()
        assert {row.token_id for row in await alice.store.subscriptions()} == {token_id}
        assert (sum(sizes), max(sizes)) == (10, 3)


async def test_many_agents_live_in_one_process(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        async with AsyncExitStack() as stack:
            agents = []
            for number in range(100):
                world = FakeWorld()
                alice = await stack.enter_async_context(
                    agent_in(world, tmp_path / str(number), executor=executor)
                )
                await activated(world, alice)
                await alice.agent.connections.create(subscribe=False)
                agents.append(alice)
            for alice in agents:
                await alice.event(NotificationsReady)
