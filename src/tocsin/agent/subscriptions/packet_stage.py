"""What a worker does about packets of direct notifications, apart from sending them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tocsin.agent.runtime.events import NotificationsFailed
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.workers import Round
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.agent.subscriptions.answers import Follow, given_up, recreated
from tocsin.agent.subscriptions.job import Kicks, Results, Stage
from tocsin.agent.subscriptions.packet_fates import FATES, ask_again, associated, in_the_old_way, seal_again
from tocsin.agent.subscriptions.packets import Packets
from tocsin.errors import AgentError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate

_SENTENCES: Final = {
    PacketFate.BAD_TOKEN: "the NTF router does not know the token, or it is not active there",
    PacketFate.BAD_QUEUE: "the NTF router does not take queues of this SMP router",
}


class PacketStage(Stage):
    """Keeps in mind which key was refused, and how long packets have been waiting for."""

    def __init__(self, parts: AgentParts, router: RouterLocation, kicks: Kicks) -> None:
        super().__init__(parts, router, kicks)
        self._refused_key: bytes | None = None
        self._delays: Iterator[float] = self._settings.pending_packets.delays()
        self._delay: float | None = None
        """Of all packets that wait still in this round."""

    async def work(self) -> Round:
        self._delay = None
        return await super().work()

    async def _nothing_due(self) -> Round:
        if self._failed:
            self._refused_key = None  # it is tried once more, if TCHK has brought no other
        return await super()._nothing_due()

    def _is_usable(self, packets: Packets) -> bool:
        return packets.offer.expires_at > self._clock.now() and packets.offer.key_id != self._refused_key

    def _wait_for_key(self, rows: Iterable[AgentSubscription], results: Results) -> None:
        """They are tried again after a delay; TCHK is sent meanwhile."""
        results.failed.extend(rows)
        results.fetch_key = True

    def _without_direct(self, row: AgentSubscription, token: AgentToken) -> AgentSubscription:
        """The SMP router does not know packets any more. What the NTF router has stays: it finds its way to it."""
        if row.subscription_id is None:
            return recreated(row, token.router, self._clock.now())
        return ask_again(row, self._clock.now() + self._settings.checks.then)

    def _follow_fate(
        self,
        row: AgentSubscription,
        sent: AgentSubscription,
        fate: PacketFate,
        token: AgentToken,
        results: Results,
        queue: ReceiveQueue | None,
        sealed: Packets | None,
    ) -> None:
        """`sent` is the row with what is known since the packet was sent, `sealed` what sealed it just now."""
        assert row.action is not None
        now, checks = self._clock.now(), self._settings.checks
        follow = FATES[row.action][fate]
        then: AgentSubscription
        match follow:
            case Follow.READY:
                self._delays = self._settings.pending_packets.delays()
                then = associated(sent, now + (checks.first if row.subscription_id is None else checks.then))
            case Follow.ASK_SOON:
                then = ask_again(sent, now + self._patience(row))
            case Follow.SEAL_AGAIN:
                results.fetch_key = True
                if sealed is not None:
                    self._refused_key = sealed.offer.key_id
                if row.action is NextAction.SEND_PACKET:
                    results.failed.append(row)
                    return
                then = seal_again(sent, now)
            case Follow.OLD_WAY:
                then = in_the_old_way(sent, now)
            case Follow.RECREATE:
                then = recreated(sent, token.router, now)
            case _:
                then = given_up(sent)
                results.suspect_token |= follow is Follow.GIVE_UP_AND_CHECK_TOKEN
                reason = AgentError(_SENTENCES[fate])
                self._events.tell(NotificationsFailed(row.connection_id, row.action, reason))
        results.completions.append(Completion(row, then, queue))

    def _patience(self, row: AgentSubscription) -> float:
        """Longer in each round in which packets wait still."""
        backoff = self._settings.pending_packets
        if row.action is not NextAction.ASK_FATE:
            return backoff.initial
        if self._delay is None:
            self._delay = backoff.spread(next(self._delays), chance())
        return self._delay
