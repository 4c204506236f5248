"""One stage of the pipeline: takes rows from the store, asks a router, writes what follows.

The stages know each other only through the rows: an action is in the store before it is executed and until it is done.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tocsin.agent.runtime.error_kinds import ErrorKind, worker_error_kind
from tocsin.agent.runtime.events import NotificationsFailed, NotificationsReady
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.workers import Idle, More, Retry, Round, Skipped, Worker
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.agent.subscriptions.answers import FOLLOWS, Follow, given_up, recreated
from tocsin.agent.subscriptions.supervision import started
from tocsin.agent.token.registration import notifies_instantly
from tocsin.errors import LocalProtocolError, TocsinError
from tocsin.protocol.addresses import RouterLocation

Rows: TypeAlias = Sequence[tuple[AgentSubscription, ReceiveQueue]]
"""What a router is asked about, each with the queue of its connection."""


@dataclass(frozen=True, slots=True)
class Kicks:
    """How stages wake each other, and the token's keeper."""

    smp: Callable[[RouterLocation], None]
    ntf: Callable[[RouterLocation], None]
    suspect_token: Callable[[], None]
    """The NTF router refused something that a token in order may do."""
    fetch_key: Callable[[], None]
    """The key for packets has expired, or the NTF router does not know it."""
    priorities: Callable[[RouterLocation], None]
    """Queues at this SMP router have new notifiers."""


@dataclass(slots=True)
class Results:
    """What a round found out."""

    completions: list[Completion] = field(default_factory=list)
    failed: list[AgentSubscription] = field(default_factory=list)
    """For now; these are tried again."""
    suspect_token: bool = False
    fetch_key: bool = False


class Stage(Worker):
    """A worker at one router."""

    at_smp_router: ClassVar[bool]

    def __init__(self, parts: AgentParts, router: RouterLocation, kicks: Kicks) -> None:
        super().__init__(parts)
        self.router = router
        self._kicks = kicks
        self._failed = Skipped()
        self._held = Skipped()

    async def work(self) -> Round:
        rows = await self._due()
        if not rows:
            return await self._nothing_due()
        token = await self._store.token()
        if not notifies_instantly(token):
            # Without an active token in instant mode nothing is created: such rows wait for a kick (behaviour D2).
            self._held.add(_names(row for row in rows if row.action is not NextAction.DELETE_KEYS))
            rows = [row for row in rows if row.action is NextAction.DELETE_KEYS]
        queues = {
            queue.connection_id: queue
            for queue in await self._store.primary_queues([row.connection_id for row in rows])
        }
        results = Results()
        for action in NextAction:
            group = [row for row in rows if row.action is action]
            if group:
                await self.perform(action, group, queues, token, results)
        await self._finish(results)
        return More(progress=bool(results.completions))

    @abstractmethod
    async def perform(
        self,
        action: NextAction,
        rows: Sequence[AgentSubscription],
        queues: Mapping[str, ReceiveQueue],
        token: AgentToken | None,
        results: Results,
    ) -> None:
        """One action for all these rows."""

    def kick(self) -> None:
        self._held.clear()
        super().kick()

    async def _due(self) -> list[AgentSubscription]:
        skipped = len(self._failed) + len(self._held)
        found = await self._store.due_actions(
            self.router,
            at_smp_router=self.at_smp_router,
            now=self._clock.now(),
            limit=self._settings.batch_size + skipped,
        )
        names = ((row, (row.connection_id, row.version)) for row in found)
        return [row for row, name in names if name not in self._failed and name not in self._held]

    async def _nothing_due(self) -> Round:
        if self._failed:
            self._failed.clear()
            return Retry()
        if self._held:
            return Idle()
        return Idle(await self._store.next_due_at(self.router, at_smp_router=self.at_smp_router))

    async def _finish(self, results: Results) -> None:
        """Writes everything in one transaction, then wakes whoever has to go on."""
        written = await self._store.complete(results.completions) if results.completions else []
        self._failed.add(_names(results.failed))
        for completion, was_current in zip(results.completions, written, strict=True):
            then = completion.then
            if was_current and then is not None and then.action is not None:
                elsewhere = then.smp_router if then.action.at_smp_router else then.ntf_router
                kick = self._kicks.smp if then.action.at_smp_router else self._kicks.ntf
                if then.action.at_smp_router is not self.at_smp_router or elsewhere != self.router:
                    kick(elsewhere)
            if was_current:
                self.report(completion)
        if results.suspect_token:
            self._kicks.suspect_token()
        if results.fetch_key:
            self._kicks.fetch_key()

    @abstractmethod
    def report(self, completion: Completion) -> None:
        """Tell the app of what is worth it."""

    def _failure(
        self,
        row: AgentSubscription,
        error: TocsinError,
        token: AgentToken | None,
        results: Results,
        kind: ErrorKind | None = None,
    ) -> None:
        """What follows an action that got no good answer."""
        assert row.action is not None
        follow = FOLLOWS[row.action][kind or worker_error_kind(error)]
        match follow:
            case Follow.RETRY:
                results.failed.append(row)
            case Follow.DROP:
                results.completions.append(Completion(row, None))
            case Follow.RECREATE:
                assert token is not None
                results.completions.append(Completion(row, recreated(row, token.router, self._clock.now())))
            case _:
                results.suspect_token |= follow is Follow.GIVE_UP_AND_CHECK_TOKEN
                results.completions.append(Completion(row, given_up(row)))
                self._events.tell(NotificationsFailed(row.connection_id, row.action, error))

    def _tell_if_ready(self, completion: Completion) -> None:
        """The app is told when the NTF router has the connection, not at each check."""
        then, done = completion.then, completion.done
        if (
            then is not None
            and then.subscription_id is not None
            and then.subscription_id != done.subscription_id
        ):
            self._events.tell(NotificationsReady(done.connection_id))

    def _moved(
        self,
        row: AgentSubscription,
        queue: ReceiveQueue | None,
        token: AgentToken,
        results: Results,
    ) -> None:
        """The row is not about the queue or the token that there are now: it starts over, or ends with the queue."""
        if queue is None:
            self._failure(
                row, LocalProtocolError("the connection has no queue to receive by"), token, results
            )
        else:
            results.completions.append(Completion(row, started(queue, token, self._clock.now())))


def _names(rows: Iterable[AgentSubscription]) -> list[tuple[str, int]]:
    return [(row.connection_id, row.version) for row in rows]
