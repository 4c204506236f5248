"""Random histories as in `test_histories`, with direct notifications that come, go and fail.

Right is: in instant mode every connection that wants notifications has a notifier that the SMP router knows with the
wanted minimum, and the NTF router has it for the current token, in one way or the other; those that want none have no
notifier, or one whose minimum keeps everything back.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.doubles.agent_fake_direct import FakeDirectWorld
from tests.doubles.agent_samples import NTF
from tests.doubles.smp_harness import START
from tests.unit.agent.test_histories import DEVICES, PLACES, Histories, JumpingClock, at
from tocsin.agent.store.records import AgentToken, NextAction, NotificationMode, ReceiveQueue
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState

ALL, OFF = MinimumPriority.ALL, MinimumPriority.OFF


class LeapingClock(JumpingClock):
    """Short waits take no time, but the clock goes on."""

    async def wait(self, seconds: float) -> None:
        await super().wait(seconds)
        if seconds < 10:
            self.move(seconds)


class DirectHistories(Histories):
    direct: ClassVar[bool] = True
    world: FakeDirectWorld

    def new_world(self) -> FakeDirectWorld:
        world = FakeDirectWorld(identity=NTF.key_hash)
        world.turn_keys(START)
        return world

    def new_clock(self) -> JumpingClock:
        return LeapingClock()

    @initialize()
    def start(self) -> None:
        """With an active token and connections of before and after it."""
        super().start()
        self.add_connection(True)
        self.register(DEVICES[0], NotificationMode.INSTANT)
        self.receive_pushes()
        self.add_connection(True)
        self.add_connection(False)

    @rule()
    def keys_are_turned(self) -> None:
        if self.world.ntf_direct:
            self.world.turn_keys(self.clock.exactly())

    @rule()
    def smp_router_forgets_refusals(self) -> None:
        self.world.forget_fates()

    @rule(smp=st.booleans(), ntf=st.booleans())
    def routers_learn_or_unlearn_it(self, smp: bool, ntf: bool) -> None:
        """With their connections, as after a restart."""
        self.world.smp_direct, self.world.ntf_direct = smp, ntf
        self.world.ntf_key = None
        if ntf:
            self.world.turn_keys(self.clock.exactly())
        self.do(self.agent._clients.close())

    @rule(place=PLACES)
    def wants_mentions_only(self, place: int) -> None:
        for name in at(place, self.wanted):
            self.do(self.agent.connections.set_notifications(name, MinimumPriority.PRIORITY))
            self.wanted[name] = True

    async def _settle(self) -> None:
        """A router that does not know direct notifications cannot tell what became of them, so it learns it again."""
        self.world.smp_direct = True
        await self.agent._clients.close()
        if self.world.ntf_direct:
            self.world.turn_keys(self.clock.exactly())
        await super()._settle()

    async def _check(self) -> None:
        assert await self.store.tokens_to_delete() == []
        token = await self.store.token()
        instant = self.device is not None and self.mode is NotificationMode.INSTANT
        if self.device is not None:
            assert token is not None
            assert self.world.tokens[token.token_id or b""].state is TokenState.ACTIVE
        rows = {row.connection_id: row for row in await self.store.subscriptions()}
        if instant:
            assert {row.action for row in rows.values()} <= {NextAction.CHECK, NextAction.ASK_FATE}
        for connection in await self.store.connections():
            [queue] = await self.store.primary_queues([connection.connection_id])
            at_smp = self.world.queues[queue.recipient_id]
            if not instant:
                assert queue.notifier is None
                assert at_smp is None
                continue
            if connection.notifications:
                assert token is not None
                assert rows[connection.connection_id].notifier_id == at_smp
                self._is_right(queue, token, connection.wanted)
            elif at_smp is not None:
                assert self.world.minimums.get(at_smp, ALL) is OFF

    def _is_right(self, queue: ReceiveQueue, token: AgentToken, wanted: MinimumPriority) -> None:
        at_smp = self.world.queues[queue.recipient_id]
        assert queue.notifier is not None
        assert at_smp == queue.notifier.notifier_id
        minimum = self.world.minimums.get(at_smp, ALL)
        assert minimum is queue.notifier.minimum
        assert minimum is wanted
        if queue.notifier.direct:
            assert self.world.associations[at_smp] == token.token_id
            return
        known = self.world.tokens[token.token_id or b""].subscriptions.values()
        [subscription] = [each for each in known if each.notifier_id == at_smp]
        assert subscription.status is SubscriptionState.ACTIVE


TestDirectHistories = DirectHistories.TestCase
TestDirectHistories.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
del Histories


def test_muted_connection_whose_packet_was_refused_keeps_no_row_without_an_action() -> None:
    """Found by Hypothesis: the row was given up, and only rows of connections that want notifications were retried."""
    history = DirectHistories()
    try:
        history.start()
        history.wants_mentions_only(place=2)
        history.ntf_router_finds_tokens_invalid()
        history.toggle(enabled=False, place=2)
        history.agent_is_killed_and_starts_again()
        history.comes_to_rest()
    finally:
        history.teardown()
