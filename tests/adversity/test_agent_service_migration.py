"""The NTF router goes from subscriptions one by one to a service and back, with agents connected.

ntf.md 8.3, row "migrate to service subscriptions", on logs and on PostgreSQL.

Between the phases routers are killed; the agents stay open and connect again.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from tests.doubles.agent_harness import RunningAgent
from tests.doubles.agent_world import AgentWorld, connected, notified, send
from tocsin.agent.runtime.events import MessageArrived, RouterDown, RouterUp


@dataclass(frozen=True)
class Phase:
    accepted: bool
    """The SMP router takes certificates of services."""
    shown: bool
    """The NTF router has one."""
    smp_killed: bool = True
    """Before this phase; the NTF router always is."""


USUAL = {"direct_notifications": "off"}
"""With direct notifications the NTF router has its service without a certificate."""

PHASES = (
    Phase(accepted=False, shown=False),
    Phase(accepted=False, shown=True, smp_killed=False),
    Phase(accepted=True, shown=True),
    Phase(accepted=True, shown=True),
    Phase(accepted=True, shown=False, smp_killed=False),
    Phase(accepted=False, shown=False),
)


async def test_agents_stay_connected_and_notified_while_routers_migrate_to_service_subscriptions_and_back(
    world: AgentWorld,
) -> None:
    smp, ntf = world.smp[0], world.ntf[0]
    at_alice: list[str] = []
    at_bob: list[str] = []
    async with AsyncExitStack() as agents:
        for number, phase in enumerate(PHASES):
            await ntf.kill()
            if phase.smp_killed:
                await smp.kill()
                await smp.start(accept_service_credentials=_on(phase.accepted), **USUAL)
            await ntf.start(use_service_credentials=_on(phase.shown), **USUAL)
            if number == 0:
                alice = await agents.enter_async_context(world.alice())
                bob = await agents.enter_async_context(world.bob())
                await alice.activate()
            elif phase.smp_killed:
                for agent in (alice, bob):
                    await agent.event(RouterDown)
                    await agent.event(RouterUp)
            for _ in range(2 if number == 0 else 1):
                pair = await connected(alice, bob, smp)
                at_alice.append(pair[0])
                at_bob.append(pair[1])
                await notified(world, alice, [pair[0]])  # Bob's introduction
            await alice.subscribed(len(at_alice))
            service = phase.accepted and phase.shown
            await ntf.until_subscribed(
                as_service=len(at_alice) if service else 0, one_by_one=0 if service else len(at_alice)
            )
            body = b"in phase %d" % number
            await send(bob, at_bob, body)
            news = await notified(world, alice, at_alice)
            for name in at_alice:
                arrived = await arrival(alice, name)
                assert (arrived.body, arrived.message_id) == (body, news[name])
        for agent in (alice, bob):
            for kind in (RouterDown, RouterUp):
                assert sum(isinstance(event, kind) for event in agent.events) == 3
    assert len(at_alice) == 7


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"


async def arrival(alice: RunningAgent, name: str) -> MessageArrived:
    """The next message of a connection, which came by itself."""
    return await alice.event(MessageArrived, lambda event: event.connection_id == name)
