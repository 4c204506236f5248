"""The job of a subscription worker: take due rows from the store, perform their actions, write what follows.

The row is the queue: an action is in the store before it is executed and until it is done. Workers at SMP and NTF
routers know each other only through the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin.agent.runtime.events import (
    EventQueue,
    NotificationsFailed,
    NotificationsReady,
    NotificationsRemoved,
)
from tocsin.agent.runtime.workers import Idle, More, Retry, Round
from tocsin.agent.store.interface import AgentStore, Completion
from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    NextAction,
    ReceiveQueue,
    notifies_instantly,
)
from tocsin.agent.subscriptions.answers import RowDecision
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation


@dataclass(frozen=True, slots=True)
class DueAction:
    """One action for several rows."""

    action: NextAction
    rows: Sequence[AgentSubscription]
    queues: Mapping[str, ReceiveQueue]
    """The primary queues of the rows' connections that have one."""
    token: AgentToken | None
    """Only an action that deletes keys is due without a token."""


class RouterActions(Protocol):
    """Requests to one router."""

    name: str
    router: RouterLocation
    at_smp_router: bool

    async def perform(self, due: DueAction) -> list[RowDecision]:
        """Perform the action for all its rows. Returns a decision for each."""

    def before_retry(self) -> None:
        """Prepare to repeat what failed."""


class Signals(Protocol):
    """The supervisor, which wakes other workers and has the token checked."""

    def kick_smp(self, router: RouterLocation) -> None: ...

    def kick_ntf(self, router: RouterLocation) -> None: ...

    def kick_priorities(self, router: RouterLocation) -> None: ...

    def doubt_token(self, *, fetch_key: bool) -> None: ...


class SubscriptionJob:
    """Rows with an action at one router."""

    def __init__(
        self,
        actions: RouterActions,
        store: AgentStore,
        clock: WaitingClock,
        events: EventQueue,
        signals: Signals,
        batch_size: int,
    ) -> None:
        self.name = actions.name
        self._actions = actions
        self._store = store
        self._clock = clock
        self._events = events
        self._signals = signals
        self._batch_size = batch_size
        # Rows that are skipped for now, by connection and version.
        self._failed: set[tuple[str, int]] = set()
        self._held: set[tuple[str, int]] = set()

    def kicked(self) -> None:
        self._held.clear()

    async def do_round(self) -> Round:
        rows = await self._due()
        if not rows:
            return await self._nothing_due()
        token = await self._store.token()
        if not notifies_instantly(token):
            # Without an active token in instant mode nothing is created: such rows wait for a kick (behaviour D2).
            self._held |= _versions(row for row in rows if row.action is not NextAction.DELETE_KEYS)
            rows = [row for row in rows if row.action is NextAction.DELETE_KEYS]
        found = await self._store.primary_queues([row.connection_id for row in rows])
        queues = {queue.connection_id: queue for queue in found}
        decisions: list[RowDecision] = []
        for action in NextAction:
            if group := [row for row in rows if row.action is action]:
                decisions += await self._actions.perform(DueAction(action, group, queues, token))
        return More(progress=await self._carry_out(decisions))

    async def _due(self) -> list[AgentSubscription]:
        skipped = self._failed | self._held
        found = await self._store.due_actions(
            self._actions.router,
            at_smp_router=self._actions.at_smp_router,
            now=self._clock.exactly(),
            limit=self._batch_size + len(skipped),
        )
        return [row for row in found if (row.connection_id, row.version) not in skipped]

    async def _nothing_due(self) -> Round:
        if self._failed:
            self._failed.clear()
            self._actions.before_retry()
            return Retry()
        if self._held:
            return Idle()
        at_smp_router = self._actions.at_smp_router
        return Idle(await self._store.next_due_at(self._actions.router, at_smp_router=at_smp_router))

    async def _carry_out(self, decisions: Sequence[RowDecision]) -> bool:
        """Write all rows in one transaction, then report and wake other workers. Returns whether any row changed."""
        completions = [each.completion for each in decisions if each.completion is not None]
        written = await self._store.complete(completions) if completions else []
        self._failed |= _versions(each.row for each in decisions if each.completion is None)
        for completion, was_current in zip(completions, written, strict=True):
            if was_current:
                self._wake_next(completion)
                self._report(completion)
        for each in decisions:
            if each.failure is not None and each.row.action is not None:
                self._events.tell(NotificationsFailed(each.row.connection_id, each.row.action, each.failure))
        if any(each.check_token for each in decisions):
            self._signals.doubt_token(fetch_key=False)
        if any(each.fetch_key for each in decisions):
            self._signals.doubt_token(fetch_key=True)
        return bool(completions)

    def _wake_next(self, completion: Completion) -> None:
        then, here = completion.then, (self._actions.at_smp_router, self._actions.router)
        if then is not None and then.action is not None:
            if then.action.at_smp_router and here != (True, then.smp_router):
                self._signals.kick_smp(then.smp_router)
            if not then.action.at_smp_router and here != (False, then.ntf_router):
                self._signals.kick_ntf(then.ntf_router)
        if completion.queue is not None:
            self._signals.kick_priorities(completion.queue.router)

    def _report(self, completion: Completion) -> None:
        """Report changes to the app: that the NTF router has the connection, not every check."""
        done, then = completion.done, completion.then
        if then is None:
            self._events.tell(NotificationsRemoved(done.connection_id))
        elif then.subscription_id is not None and then.subscription_id != done.subscription_id:
            self._events.tell(NotificationsReady(done.connection_id))


def _versions(rows: Iterable[AgentSubscription]) -> set[tuple[str, int]]:
    return {(row.connection_id, row.version) for row in rows}
