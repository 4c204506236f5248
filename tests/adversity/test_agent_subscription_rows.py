"""Subscriptions, rows of ntf.md 8.3: routers as processes, on logs and on PostgreSQL, and a fake APNs.

The rows about restarts are in `test_agent_restarts.py`, those about service subscriptions in
`test_agent_service_migration.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.doubles.agent_harness import (
    CURRENT_CLIENT,
    INSTANT,
    PERIODIC,
    PREVIOUS_CLIENT,
    ClientVersions,
    RunningAgent,
    agent_settings,
    ntf_address,
    smp_address,
)
from tests.doubles.agent_world import AgentWorld, connected, notified, pushed, send
from tocsin.agent.runtime.events import (
    ConnectionReady,
    MessageArrived,
    NotificationsReady,
    NotificationsRemoved,
    QueueRotated,
)
from tocsin.errors import AgentError
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.smp.versions import SUPPORTED as SMP_VERSIONS

ACTIVE = TokenStatus(TokenState.ACTIVE)
PREVIOUS_SMP, PREVIOUS_NTF = {"highest_version": 16}, {"highest_version": 2}


@dataclass(frozen=True)
class Versions:
    """One cell of the matrix: routers and clients, each current or previous."""

    smp_current: bool
    ntf_current: bool
    alice: ClientVersions
    bob: ClientVersions
    spoken: tuple[int, int]
    """What Alice comes to speak with the SMP and the NTF router."""


MATRIX = {
    "all current": Versions(True, True, CURRENT_CLIENT, CURRENT_CLIENT, (SMP_VERSIONS.highest, 3)),
    "previous clients": Versions(True, True, PREVIOUS_CLIENT, PREVIOUS_CLIENT, (16, 1)),
    "all previous": Versions(False, False, PREVIOUS_CLIENT, PREVIOUS_CLIENT, (16, 1)),
    "previous routers": Versions(False, False, CURRENT_CLIENT, CURRENT_CLIENT, (16, 2)),
    "current SMP router only": Versions(True, False, PREVIOUS_CLIENT, PREVIOUS_CLIENT, (16, 1)),
    "current NTF router only": Versions(False, True, PREVIOUS_CLIENT, PREVIOUS_CLIENT, (16, 1)),
    "previous client of the sender": Versions(
        True, True, CURRENT_CLIENT, PREVIOUS_CLIENT, (SMP_VERSIONS.highest, 3)
    ),
    "previous client of the recipient": Versions(True, True, PREVIOUS_CLIENT, CURRENT_CLIENT, (16, 1)),
}


@pytest.mark.parametrize("versions", MATRIX.values(), ids=MATRIX)
async def test_existing_and_new_connections_are_notified_of_whatever_the_versions(
    world: AgentWorld, versions: Versions
) -> None:
    """Rows "existing connection" and "new connection", each with the 8 combinations of versions."""
    await world.smp[0].start(**({} if versions.smp_current else PREVIOUS_SMP))
    await world.ntf[0].start(**({} if versions.ntf_current else PREVIOUS_NTF))
    assert await spoken(world, versions.alice) == versions.spoken
    await existing_connection(world, versions)
    await new_connection(world, versions)


async def spoken(world: AgentWorld, clients: ClientVersions) -> tuple[int, int]:
    settings = agent_settings([], []).clients
    smp, ntf = smp_address(world.smp[0].location), ntf_address(world.ntf[0].location)
    async with clients.connect_smp(settings)(smp) as to_smp, clients.connect_ntf(settings)(ntf) as to_ntf:
        return to_smp.session.version, to_ntf.session.version


async def existing_connection(world: AgentWorld, versions: Versions) -> None:
    async with world.bob(versions.bob) as bob:
        async with world.alice(clients=versions.alice) as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.activate()
            await alice.subscribed(1)
            await send(bob, [at_bob], b"while she is subscribed")
            await alice.event(MessageArrived)
            woken = await alice.woken()
            [item] = woken.to_fetch
            assert item.meta is not None
            assert (item.connection_id, woken.unreadable) == (at_alice, ())
            world.told.add(item.meta.message_id)
            [refused] = await alice.agent.fetch([item])
            assert isinstance(refused.failure, AgentError)
            await alice.agent.connections.unsubscribe()
            await send(bob, [at_bob], b"while she is not")
        async with world.alice(clients=versions.alice) as alice:
            await pushed(world, alice, [at_alice], b"while she is not")
            assert await alice.agent.connections.subscribe() == {}
            await send(bob, [at_bob], b"in the foreground")
            assert (await alice.event(MessageArrived, is_in_foreground)).connection_id == at_alice
            await notified(world, alice, [at_alice])
            await alice.agent.connections.set_notifications(at_alice, False)
            await alice.event(NotificationsRemoved)
            await send(bob, [at_bob], b"quietly")
            await alice.event(MessageArrived)
            await world.apns.nothing(alice.device_token)


def is_in_foreground(event: MessageArrived) -> bool:
    return event.body == b"in the foreground"


async def new_connection(world: AgentWorld, versions: Versions) -> None:
    """Both have a device: each is woken by what the other's agent or user sends, and by nothing else."""
    async with (
        world.alice(name="carol", clients=versions.alice) as carol,
        world.alice(name="dave", clients=versions.bob) as dave,
    ):
        await carol.activate()
        await dave.activate()
        if (
            versions == MATRIX["all current"]
        ):  # NEW names the notifier, so not even the first message is missed
            at_carol, at_dave = await connected(carol, dave, world.smp[0])
            await notified(world, carol, [at_carol])  # Dave's introduction
        else:
            at_carol, at_dave = await connected_slowly(world, carol, dave)
        await notified(world, dave, [at_dave])  # Carol's welcome
        for number in (b"1", b"2"):
            await exchanged(world, dave, at_dave, carol, at_carol, b"to Carol " + number)
            await exchanged(world, carol, at_carol, dave, at_dave, b"to Dave " + number)
        await world.apns.nothing()


async def connected_slowly(world: AgentWorld, carol: RunningAgent, dave: RunningAgent) -> tuple[str, str]:
    """Each has its notifier before the other writes: up to v16, NKEY follows NEW, and a message may be quicker."""
    where = smp_address(world.smp[0].location)
    invitation = await carol.agent.connections.create(router=where)
    await carol.subscribed(1)
    await carol.agent.connections.unsubscribe()
    joined = await dave.agent.connections.join(invitation.text, router=where)
    await notified(world, carol, [invitation.connection_id])  # Dave's introduction
    await dave.subscribed(1)
    assert await carol.agent.connections.subscribe() == {}
    await carol.event(ConnectionReady)
    await dave.event(ConnectionReady)
    return invitation.connection_id, joined


async def exchanged(
    world: AgentWorld, sender: RunningAgent, at_sender: str, receiver: RunningAgent, name: str, body: bytes
) -> None:
    await send(sender, [at_sender], body)
    assert (await receiver.event(MessageArrived)).body == body
    await notified(world, receiver, [name])


async def test_mode_decides_about_pushes(world: AgentWorld) -> None:
    """Row "change mode"."""
    await world.start()
    async with world.bob() as bob, world.alice() as alice:
        at_alice, at_bob = await connected(alice, bob, world.smp[0])
        await alice.agent.connections.unsubscribe()
        await alice.activate()
        await alice.subscribed(1)
        await send(bob, [at_bob], b"instant")
        await pushed(world, alice, [at_alice], b"instant")
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == ACTIVE
        await unheard(world, alice, at_alice, bob, at_bob)
        assert await alice.agent.tokens.register(alice.device, INSTANT) == ACTIVE
        await alice.subscribed(1)
        await send(bob, [at_bob], b"instant again")
        await pushed(world, alice, [at_alice], b"instant again", former_notifiers=True)
        await alice.agent.tokens.delete()
        await unheard(world, alice, at_alice, bob, at_bob)
        await alice.activate()
        await alice.subscribed(1)
        await send(bob, [at_bob], b"with a new token")
        await pushed(world, alice, [at_alice], b"with a new token", former_notifiers=True)
        await world.apns.nothing(alice.device_token)


async def unheard(
    world: AgentWorld, alice: RunningAgent, at_alice: str, bob: RunningAgent, at_bob: str
) -> None:
    """The subscription goes, a message wakes nobody, and it is there when she looks."""
    await alice.event(NotificationsRemoved)
    await send(bob, [at_bob], b"unheard")
    await world.apns.nothing(alice.device_token)
    await alice.agent.connections.subscribe()
    await alice.event(MessageArrived, lambda event: event.body == b"unheard")
    await alice.agent.connections.unsubscribe()


@pytest.mark.parametrize("routers", [1, 2])
async def test_rotated_queue_is_notified_of(world: AgentWorld, routers: int) -> None:
    """Row "switch queue", with one and with two SMP routers; then the new queue's router is killed."""
    await world.start(smp=routers)
    target = world.smp[routers - 1]
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.activate()
            await alice.event(NotificationsReady)
            await exchanged(world, bob, at_bob, alice, at_alice, b"before")
            await alice.agent.connections.rotate(at_alice, smp_address(target.location))
            await alice.event(QueueRotated)
            await alice.event(NotificationsReady)
            await send(bob, [at_bob], b"after")
            assert (await alice.event(MessageArrived)).body == b"after"
            assert (await alice.woken()).to_fetch[-1].connection_id == at_alice
            [queue] = await alice.store.receive_queues(at_alice)
            assert (queue.router, queue.number) == (target.location, 2)
        await target.kill()
        await target.start()
        async with world.alice() as alice:
            await send(bob, [at_bob], b"after the kill")
            [fetched] = await alice.fetched()
            assert [event.body for event in fetched.messages if isinstance(event, MessageArrived)] == [
                b"after the kill"
            ]
