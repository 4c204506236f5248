"""Workers with direct notifications next to routers in memory: what they send after which fate of a packet."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import INSTANT, RunningAgent
from tests.doubles.agent_samples import OTHER_NTF, SMP
from tests.doubles.fake_routers import FakeWorld, Fault, new_dh_key
from tests.doubles.smp_harness import until
from tests.unit.agent.subscriptions.test_job import RecordingClock, activated, agent_in
from tocsin.agent.runtime.events import (
    NotificationsFailed,
    NotificationsReady,
    NotificationsRemoved,
    TokenStatusChanged,
)
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import NextAction
from tocsin.agent.subscriptions.row_changes import recreated
from tocsin.clients import Backoff
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    DisableNotificationsProven,
    SendPacketAgain,
    SetMinimumPriority,
)
from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.messages import Command
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.router_answers import Refused

A, P, K = PacketFate.ACCEPTED, PacketFate.PENDING, PacketFate.UNKNOWN_KEY
T, Q, U = PacketFate.BAD_TOKEN, PacketFate.BAD_QUEUE, PacketFate.UNSUPPORTED
START = 1_700_000_000.0
LATER = int(START) + 30 * 86_400


class LeapingClock(RecordingClock):
    """Waits take no time: the clock leaps over them. Those of hours never end."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START

    def exactly(self) -> float:
        return self.time

    async def wait(self, seconds: float) -> None:
        await super().wait(seconds)
        self.time += seconds


def new_offer(expires_at: int = LATER) -> NtfKeyOffer:
    return NtfKeyOffer(new_dh_key().public, expires_at)


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld(direct=True, ntf_key=new_offer())


@asynccontextmanager
async def alice_in(
    world: FakeWorld, tmp_path: Path, clock: RecordingClock | None = None, **changes: Any
) -> AsyncIterator[RunningAgent]:
    settings: dict[str, Any] = {"direct": True, "priority_delay": 0.0, **changes}
    async with agent_in(world, tmp_path / "a", clock or LeapingClock(), **settings) as alice:
        yield alice


async def waiting_connection(alice: RunningAgent, count: int = 1) -> list[str]:
    """Made without a token, so that the worker makes the notifiers."""
    return [(await alice.agent.connections.create(subscribe=False)).connection_id for _ in range(count)]


def tags(commands: Sequence[Command]) -> list[str]:
    return [
        f"{command.tag.decode()} packet"
        if isinstance(command, SendPacketAgain) and command.packet
        else command.tag.decode()
        for command in commands
    ]


async def test_packets_that_stay_pending_give_way_to_the_old_way(world: FakeWorld, tmp_path: Path) -> None:
    """An SMP router cannot reach every NTF router, and the phone must get its notifications all the same."""
    world.fates = deque([P] * 1_000)
    clock = LeapingClock()
    async with alice_in(world, tmp_path, clock, pending_limit=60.0) as alice:
        await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        sent = tags(world.commands)
        assert sent[0] == "NSKEY"
        assert set(sent[1:-1]) == {"NPKT"}
        assert sent[-1] == "NKEY"
        assert clock.time >= START + 60
        assert len(world.fates) > 900, "the delays grow"


@pytest.mark.parametrize(
    ("fates", "sent"),
    [
        ([A], ["NSKEY"]),
        ([P, A], ["NSKEY", "NPKT"]),
        ([P, P, P, A], ["NSKEY", "NPKT", "NPKT", "NPKT"]),
        ([K, A], ["NSKEY", "NPKT packet"]),
        ([P, K, P, A], ["NSKEY", "NPKT", "NPKT packet", "NPKT"]),
        ([P, Q, A], ["NSKEY", "NPKT", "NSKEY"]),
        ([K, Q, A], ["NSKEY", "NPKT packet", "NSKEY"]),
        ([U], ["NSKEY", "NKEY"]),
        ([P, U], ["NSKEY", "NPKT", "NKEY"]),
    ],
    ids=lambda value: "".join(each.value.decode() if isinstance(each, PacketFate) else "" for each in value),
)
async def test_fates_of_packets_lead_to_notifications(
    world: FakeWorld, tmp_path: Path, fates: list[PacketFate], sent: list[str]
) -> None:
    world.fates = deque(fates)
    async with alice_in(world, tmp_path) as alice:
        [name] = await waiting_connection(alice)
        await activated(world, alice)
        if K in fates:
            world.ntf_key = new_offer()
        await alice.event(NotificationsReady)
        assert tags(world.commands) == sent
        [row] = await alice.store.subscriptions()
        [queue] = await alice.store.primary_queues([name])
        assert queue.notifier is not None
        assert row.notifier_id == queue.notifier.notifier_id == world.queues[queue.recipient_id]
        if U in fates:
            assert not queue.notifier.direct
            assert row.action is NextAction.CHECK
        else:
            assert queue.notifier.direct
            assert (row.action, row.subscription_id) == (NextAction.ASK_FATE, row.notifier_id)
        alice.no_trouble()


def packets(world: FakeWorld) -> list[bytes]:
    """All that were sent to associate a queue."""
    sent = [each.subscription.packet for each in world.commands if isinstance(each, AssociateQueue)]
    return sent + [
        each.packet for each in world.commands if isinstance(each, SendPacketAgain) and each.packet
    ]


async def test_packet_for_an_unknown_key_is_sealed_to_the_next_one(world: FakeWorld, tmp_path: Path) -> None:
    world.fates.append(K)
    first = world.ntf_key
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        await activated(world, alice)
        second = world.ntf_key = new_offer()
        await alice.event(NotificationsReady)
        assert first is not None
        assert [packet[:8] for packet in packets(world)] == [first.key_id, second.key_id]
        assert (await alice.agent.tokens.current()).ntf_key == second


async def test_key_that_has_expired_is_not_used(world: FakeWorld, tmp_path: Path) -> None:
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        world.ntf_key = new_offer(int(START) - 1)
        await alice.agent.tokens.register(alice.device, INSTANT)
        world.ntf_key = new_offer()
        await alice.agent.wake(world.pushes.popleft())
        await alice.event(NotificationsReady)
        assert [packet[:8] for packet in packets(world)] == [world.ntf_key.key_id]
        alice.no_trouble()


async def test_key_is_fetched_again_and_again_while_the_ntf_router_is_down(
    world: FakeWorld, tmp_path: Path
) -> None:
    clock = LeapingClock()
    async with alice_in(world, tmp_path, clock) as alice:
        await waiting_connection(alice)
        world.smp_down = True
        await activated(world, alice)
        world.ntf_down, world.smp_down = True, False
        clock.time = LATER + 1.0
        before = len(clock.waits)
        await until(lambda: len(clock.waits) >= before + 5)
        assert packets(world) == []
        world.ntf_key = new_offer(LATER * 2)
        world.ntf_down = False
        await alice.event(NotificationsReady)
        alice.no_trouble()


async def test_packet_of_a_bad_token_is_given_up_and_the_token_checked(
    world: FakeWorld, tmp_path: Path
) -> None:
    world.fates.append(T)
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        world.smp_down = True
        await activated(world, alice)
        for token in world.tokens.values():
            token.state = TokenState.INVALID
        world.smp_down = False
        failed = await alice.event(NotificationsFailed)
        assert failed.action is NextAction.CREATE_KEYS
        await alice.event(TokenStatusChanged)
        await alice.agent.tokens.register(alice.device, INSTANT)
        await alice.agent.wake(world.pushes.popleft())
        await alice.event(NotificationsReady)
        assert tags(world.commands) == ["NSKEY", "NSKEY"]


async def test_queue_that_the_ntf_router_never_takes_is_given_up_until_the_next_start(
    world: FakeWorld, tmp_path: Path
) -> None:
    world.fates.append(Q)
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsFailed)
        await alice.at_rest()
        assert tags(world.commands) == ["NSKEY"]
    async with alice_in(world, tmp_path) as alice:
        await alice.event(NotificationsReady)


async def test_router_on_which_too_many_packets_wait_is_asked_again(world: FakeWorld, tmp_path: Path) -> None:
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        world.smp_down = True
        await activated(world, alice)
        world.faults.append(Fault.REFUSED)  # ERR QUOTA
        world.smp_down = False
        await alice.event(NotificationsReady)


async def test_fate_that_the_router_has_forgotten_starts_over(
    world: FakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fates.append(P)
    answer = FakeWorld.at_smp

    def forgetful(self: FakeWorld, request: Any) -> Any:
        answered = answer(self, request)
        return Refused(CommandFault.PROHIBITED) if isinstance(request.command, SendPacketAgain) else answered

    monkeypatch.setattr(FakeWorld, "at_smp", forgetful)
    async with alice_in(world, tmp_path) as alice:
        await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        assert tags(world.commands) == ["NSKEY", "NPKT", "NSKEY"]


async def test_asking_about_packets_that_wait_becomes_rarer(world: FakeWorld, tmp_path: Path) -> None:
    clock = LeapingClock()
    waits = Backoff(initial=2.0, increase_after=4.0, maximum=9.0, factor=1.5, jitter=0.0)
    world.fates = deque([P] * 14)
    async with alice_in(world, tmp_path, clock, pending_packets=waits) as alice:
        await waiting_connection(alice, 2)
        await activated(world, alice)
        for _ in range(2):
            await alice.event(NotificationsReady)
    asked = [round(wait, 3) for wait in clock.waits if wait > 1]
    assert asked == [2.0, 2.0, 2.0, 3.0, 4.5, 6.75, 9.0], "one wait for both queues each time"


async def test_new_notifier_of_a_queue_ends_the_association_of_the_one_before(
    world: FakeWorld, tmp_path: Path
) -> None:
    async with alice_in(world, tmp_path) as alice:
        [name] = await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        [row] = await alice.store.subscriptions()
        await alice.store.put_subscriptions([recreated(row, row.ntf_router, START)])
        alice.agent.supervisor.kick_smp(SMP)
        await alice.event(NotificationsReady)
        first, second = (each for each in world.commands if isinstance(each, AssociateQueue))
        assert first.replaced is None
        assert second.replaced is not None
        await alice.agent.connections.set_notifications(name, False)
        await alice.agent.supervisor.delete([name])
        await alice.event(NotificationsRemoved)
        assert isinstance(world.commands[-1], DisableNotificationsProven)
        assert world.commands[-1].packet is not None


@pytest.mark.parametrize("action", [NextAction.ASK_FATE, NextAction.SEND_PACKET])
@pytest.mark.parametrize(
    ("row_has", "notifier_has"),
    [
        ({"notifier_id": bytes(24)}, {}),
        ({"token_id": bytes(24)}, {}),
        ({"ntf_router": OTHER_NTF}, {}),
        ({}, {"key": b"notifier key"}),
        ({}, None),
    ],
    ids=["another notifier", "another token", "another NTF router", "notifier with a key", "no notifier"],
)
async def test_packet_of_another_token_or_notifier_is_not_asked_about_but_made_anew(
    world: FakeWorld,
    tmp_path: Path,
    row_has: dict[str, Any],
    notifier_has: dict[str, Any] | None,
    action: NextAction,
) -> None:
    """The SMP router would answer for the packet that it has, and the row would be taken for one in order."""
    async with alice_in(world, tmp_path) as alice:
        [name] = await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        await alice.at_rest()
        [row], [queue] = await alice.store.subscriptions(), await alice.store.primary_queues([name])
        assert queue.notifier is not None
        notifier = None if notifier_has is None else replace(queue.notifier, **notifier_has)
        then = replace(row, action=action, due_at=START, **row_has)
        changed = Completion(row, then, replace(queue, notifier=notifier))
        assert await alice.store.complete([changed]) == [True]
        alice.agent.supervisor.kick_smp(SMP)
        await alice.at_rest()
        assert tags(world.commands) == ["NSKEY", "NSKEY"]
        [row], [queue] = await alice.store.subscriptions(), await alice.store.primary_queues([name])
        token = await alice.agent.tokens.current()
        assert queue.notifier is not None
        assert row.notifier_id == queue.notifier.notifier_id == world.queues[queue.recipient_id]
        assert (row.ntf_router, row.token_id) == (token.router, token.token_id)
        alice.no_trouble()


# Priorities


async def test_changes_of_priorities_are_told_together_in_random_order_after_a_random_delay(
    world: FakeWorld, tmp_path: Path
) -> None:
    clock = LeapingClock()
    async with alice_in(world, tmp_path, clock, priority_delay=5.0) as alice:
        names = await waiting_connection(alice, 20)
        await activated(world, alice)
        for _ in names:
            await alice.event(NotificationsReady)
        await alice.at_rest()
        before, asked = len(clock.waits), len(world.commands)
        for name in names:
            await alice.store.set_notifications(name, True, MinimumPriority.PRIORITY)
        await alice.agent.supervisor.adjust_priorities()
        await alice.at_rest()
        told = world.commands[asked:]
        assert told == [SetMinimumPriority(MinimumPriority.PRIORITY)] * 20
        [wait] = clock.waits[before:]
        assert 0 < wait <= 5.0
        assert await alice.store.routers_with_priority_changes() == []
        alice.no_trouble()


async def test_change_of_priority_that_fails_for_now_is_told_again(world: FakeWorld, tmp_path: Path) -> None:
    async with alice_in(world, tmp_path) as alice:
        [name] = await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        await alice.at_rest()
        world.faults.extend([Fault.LOST, Fault.ANSWER_LOST, Fault.STORE])
        await alice.agent.connections.set_notifications(name, False)
        await alice.at_rest()
        assert tags(world.commands) == ["NSKEY", "NPRI", "NPRI"], "two did not arrive"
        [queue] = await alice.store.primary_queues([name])
        assert queue.notifier is not None
        assert queue.notifier.minimum is MinimumPriority.OFF


async def test_agent_without_direct_notifications_sends_what_it_always_did(tmp_path: Path) -> None:
    world = FakeWorld(direct=False, ntf_key=None)
    async with alice_in(world, tmp_path, direct=False) as alice:
        [name] = await waiting_connection(alice)
        await activated(world, alice)
        await alice.event(NotificationsReady)
        await alice.agent.connections.set_notifications(name, False)
        await alice.at_rest()
        assert tags(world.commands) == ["NKEY", "NDEL"]
