"""A router is restored from an old backup: the drift is detected, repaired as far as it can be, and the rest reported.

docs/howto/restore-a-backup.md says the same to operators.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.agent_harness import INSTANT, RunningAgent
from tests.doubles.agent_world import PATIENCE, AgentWorld, connected, pushed, send
from tests.doubles.spark_desk import SparkDesk
from tocsin.agent import CheckIntervals, ToFetch
from tocsin.agent.runtime.events import MessageArrived, NotificationsFailed
from tocsin.errors import ClientError
from tocsin.events.queue_exports import id_text
from tocsin.events.repair_plans import RepairEntry, read_plan
from tocsin.operate.clock import SystemClock
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.push.fake.behaviours import Respond

pytestmark = pytest.mark.timeout(240)
CHECKED_AFTER: Final = CheckIntervals().then
OLD, NEW = b"0a", b"0b"
"""Device tokens of a phone before and after the backup."""


class LaterClock(SystemClock):
    """Of phones whose next check of their subscriptions has come."""

    def exactly(self) -> float:
        return super().exactly() + CHECKED_AFTER


class Reconciliation:
    """What an operator does after a restore, while both routers are stopped."""

    def __init__(self, world: AgentWorld, desk: SparkDesk, folder: Path) -> None:
        self._world = world
        self._desk = desk
        self._folder = folder
        self.plan: list[RepairEntry] = []

    async def reconcile(self, *, agree: bool = False) -> dict[str, Any]:
        """Export and compare. Returns the summary of the job."""
        subscriptions, notifiers = self._folder / "subscriptions.jsonl", self._folder / "notifiers.jsonl"
        plan, lake = self._folder / "plan.jsonl", self._folder / "lake"
        await self._world.ntf[0].tocsin("store", "export-subscriptions", subscriptions)
        await self._world.smp[0].tocsin("store", "export-notifiers", notifiers)
        exports = ("--ntf", subscriptions, "--smp", notifiers, "--plan", plan, "--lake", lake)
        said = await self._desk.run("reconcile", *exports, "--json", code=0 if agree else 1)
        self.plan = read_plan(plan)
        summary: dict[str, Any] = json.loads(said)
        return summary

    async def repair(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(
            await self._world.ntf[0].tocsin("repair", self._folder / "plan.jsonl", "--json")
        )
        return said

    def planned(self) -> set[tuple[str, str, str]]:
        return {(each.kind.value, each.action.value, each.notifier_id) for each in self.plan}


async def stop(world: AgentWorld) -> None:
    await world.ntf[0].kill()
    await world.smp[0].kill()


async def start(world: AgentWorld) -> None:
    await world.smp[0].start()
    await world.ntf[0].start()


async def notifier_of(agent: RunningAgent, connection_id: str) -> str:
    [queue] = await agent.store.primary_queues([connection_id])
    assert queue.notifier is not None
    return id_text(queue.notifier.notifier_id)


async def notified_of_all(
    world: AgentWorld, agent: RunningAgent, bob: RunningAgent, pairs: Sequence[Any]
) -> None:
    """A message in each of these chats wakes the phone."""
    await send(bob, [at_bob for _, at_bob in pairs], b"hello")
    await pushed(world, agent, [at_alice for at_alice, _ in pairs], b"hello", former_notifiers=True)


async def until_active(agent: RunningAgent) -> None:
    """The app is opened until its token works, as users do who miss notifications."""
    async with asyncio.timeout(PATIENCE):
        while True:
            # An app knows its mode. It cannot ask the token for it while the agent makes a new one.
            status = await agent.agent.tokens.register(agent.device, INSTANT)
            if status.state is TokenState.ACTIVE:
                return
            if status.state is TokenState.REGISTERED:
                await agent.verify()
            await asyncio.sleep(0.05)


async def until_invalid(agent: RunningAgent) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await agent.agent.tokens.check()).state is not TokenState.INVALID:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def until_subscribed_anew(agent: RunningAgent, connection_id: str, before: set[str]) -> None:
    """The chat has other notifier credentials than before, and a subscription."""
    async with asyncio.timeout(PATIENCE):
        while await _notifier_or_none(agent, connection_id) in (None, *before):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    await agent.at_rest()
    rows = {row.connection_id: row for row in await agent.store.subscriptions()}
    assert rows[connection_id].subscription_id is not None


async def _notifier_or_none(agent: RunningAgent, connection_id: str) -> str | None:
    [queue] = await agent.store.primary_queues([connection_id])
    return None if queue.notifier is None else id_text(queue.notifier.notifier_id)


async def fetch_what_waits(agent: RunningAgent, connection_id: str) -> None:
    """The messages that no push announced are safe at the SMP router."""
    [fetched] = await agent.fetch([ToFetch(connection_id, 1)])
    assert [message.body for message in fetched.messages if isinstance(message, MessageArrived)] == [
        b"to the former device token"
    ]


async def test_an_old_backup_of_the_ntf_router_is_detected_and_healed(
    world: AgentWorld, desk: SparkDesk, tmp_path: Path
) -> None:
    work = Reconciliation(world, desk, tmp_path)
    await world.start()
    async with (
        world.bob() as bob,
        world.alice() as alice,
        world.alice(name="carol", device_token=OLD) as carol,
    ):
        kept, muted = [await connected(alice, bob, world.smp[0]) for _ in range(2)]
        carols = await connected(carol, bob, world.smp[0])
        for phone, count in ((alice, 2), (carol, 1)):
            await phone.agent.connections.unsubscribe()
            await phone.activate()
            await phone.subscribed(count)
            await phone.at_rest()
    await stop(world)
    await world.ntf[0].back_up()
    await start(world)
    async with (
        world.bob() as bob,
        world.alice() as alice,
        world.alice(name="carol", device_token=NEW) as carol,
        world.alice(name="dave") as dave,
    ):
        gone = await notifier_of(alice, muted[0])
        await alice.agent.connections.set_notifications(muted[0], MinimumPriority.OFF)
        added = await connected(alice, bob, world.smp[0])
        await alice.agent.connections.unsubscribe()
        await alice.subscribed(2)
        await carol.activate()
        daves = await connected(dave, bob, world.smp[0])
        await dave.agent.connections.unsubscribe()
        await dave.activate()
        await dave.subscribed(1)
        for phone in (alice, carol, dave):
            await phone.at_rest()
        unknown = {await notifier_of(alice, added[0]), await notifier_of(dave, daves[0])}
    await stop(world)
    await world.ntf[0].restore()

    said = await work.reconcile()
    assert (said["missing_at_smp"], said["unknown_at_ntf"]) == (1, 2)
    assert work.planned() == {
        ("missing_at_smp", "recreate", gone),
        *(("unknown_at_ntf", "report", each) for each in unknown),
    }
    repaired = await work.repair()
    assert (repaired["recreate_applied"], repaired["report_reported"]) == (1, 2)

    await start(world)
    world.apns.behave(Respond(410, "Unregistered"), device_token=OLD, times=None)
    async with (
        world.bob() as bob,
        world.alice(clock=LaterClock()) as alice,
        world.alice(name="carol", device_token=NEW, clock=LaterClock()) as carol,
        world.alice(name="dave", clock=LaterClock()) as dave,
    ):
        # What was subscribed to before the backup needs nobody's help.
        await notified_of_all(world, alice, bob, [kept])
        # The device finds out by itself that the router does not know its subscription or its token.
        await until_subscribed_anew(alice, added[0], unknown)
        await until_active(dave)
        await until_subscribed_anew(dave, daves[0], unknown)
        # The router pushes to the former device token, is told that it is gone, and the app registers again.
        await send(bob, [carols[1]], b"to the former device token")
        await until_invalid(carol)
        await until_active(carol)
        await carol.subscribed(1)
        await carol.at_rest()
        await fetch_what_waits(carol, carols[0])
        await notified_of_all(world, alice, bob, [kept, added])
        await notified_of_all(world, carol, bob, [carols])
        await notified_of_all(world, dave, bob, [daves])
    await stop(world)
    assert (await work.reconcile(agree=True))["smp_routers_that_differ"] == 0


@pytest.mark.parametrize("database_server", ["logs"], indirect=True)
async def test_an_old_backup_of_an_smp_router_is_detected_and_what_is_lost_is_reported(
    world: AgentWorld, desk: SparkDesk, tmp_path: Path
) -> None:
    work = Reconciliation(world, desk, tmp_path)
    await world.start()
    async with world.bob() as bob, world.alice() as alice:
        kept, notified, deleted = [await connected(alice, bob, world.smp[0]) for _ in range(3)]
        await alice.agent.connections.unsubscribe()
        await alice.agent.connections.set_notifications(notified[0], MinimumPriority.OFF)
        await alice.activate()
        await alice.subscribed(2)
        await alice.at_rest()
        await world.ntf[0].until_subscribed(as_service=2, one_by_one=0)
        risen = await notifier_of(alice, deleted[0])
    await stop(world)
    world.smp[0].back_up()
    await start(world)
    async with world.bob() as bob, world.alice() as alice:
        await alice.agent.connections.set_notifications(notified[0], MinimumPriority.ALL)
        await alice.agent.connections.delete(deleted[0])
        added = await connected(alice, bob, world.smp[0])
        await alice.agent.connections.unsubscribe()
        await alice.subscribed(3)
        await alice.at_rest()
        lost = {await notifier_of(alice, each) for each in (notified[0], added[0])}
        await world.ntf[0].until_subscribed(as_service=4, one_by_one=0)  # the deleted one was subscribed, too
        await world.ntf[0].until_logged(b" DELETED\n")
    await stop(world)
    world.smp[0].restore()

    said = await work.reconcile()
    assert (said["missing_at_smp"], said["ended_at_ntf"]) == (2, 1)
    assert work.planned() == {
        *(("missing_at_smp", "recreate", each) for each in lost),
        ("ended_at_ntf", "resubscribe", risen),
    }
    repaired = await work.repair()
    assert (repaired["recreate_applied"], repaired["resubscribe_applied"]) == (2, 1)

    await start(world)
    async with world.bob() as bob, world.alice(clock=LaterClock()) as alice:
        await until_subscribed_anew(alice, notified[0], lost)
        await notified_of_all(world, alice, bob, [kept, notified])
        # The queue itself is gone: its users are told, and have to connect again.
        failure = await alice.event(NotificationsFailed, lambda event: event.connection_id == added[0])
        assert isinstance(failure.reason, ClientError)
        with pytest.raises(ClientError):
            await send(bob, [added[1]], b"to a queue that is gone")
