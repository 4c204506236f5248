"""The pushes of one provider: which token is next, and what is in flight.

A token is in at most one push at a time, which keeps the order of its notifications. Notifications that arrive
meanwhile wait in the store and share the next push. A push that fails for a passing reason is repeated
(`retry_schedule`). The queue of tokens needs no bound: it holds at most the tokens in the store.

Verification and periodic pushes wait next to it (`control_pushes`). While message pushes wait too, control pushes get
one of every four places, and hold at most a quarter of them: nobody can stop messages by registering device tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice
from typing import Final

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.control_pushes import ControlPush, ControlPushes
from tocsin.ntf_router.delivery.handover import HandOver, JobAnswer
from tocsin.ntf_router.delivery.handover_rows import RowKind
from tocsin.ntf_router.delivery.outcome_rows import JOB_FAILURES, TOO_LARGE
from tocsin.ntf_router.delivery.outcomes import OutcomeRecorder
from tocsin.ntf_router.delivery.pushes import SPARK, NotificationPush, choose_notifications, message_request
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.delivery.token_engines import TokenEngines
from tocsin.ntf_router.session.requests import counts
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import (
    ACCEPTED,
    DuePush,
    LastNotification,
    PendingNotification,
    SettledNotification,
    TokenRecord,
)
from tocsin.ntf_router.store.retry import pause_after
from tocsin.operate.randomness import Randomness
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.push.provider import (
    Accepted,
    Provider,
    PushOutcome,
    PushRefused,
    RetryLater,
    RetryScope,
    TokenInvalid,
)

TRIAL: Final = 32
"""Tokens that are handed over at a time while the job cannot reach the provider. Each would come back otherwise."""
CONTROL_SHARE: Final = 4
"""Control pushes get one of so many places while message pushes wait."""
_WEB_PUSH: Final = PushProvider.WEBPUSH

logger = logging.getLogger(__name__)


class DeliveryLane:
    """Sends the pushes of one provider. It runs until its task is cancelled."""

    def __init__(
        self,
        name: PushProvider,
        provider: Provider,
        store: NtfStore,
        outcomes: OutcomeRecorder,
        randomness: Randomness,
        reroute: Callable[[bytes, PushProvider], None],
        engines: TokenEngines,
        *,
        settings: DeliverySettings,
        counters: NtfCounters,
    ) -> None:
        """`reroute` takes a token whose provider has changed. `engines` says for which tokens a job pushes."""
        self.provider = provider
        self._name = name
        self._store = store
        self._outcomes = outcomes
        self._settings = settings
        self._counters = counters
        self._randomness = randomness
        self._reroute = reroute
        self._engines = engines
        self._counts = counts(name)
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        self._had_job = engines.job is not None
        engines.when_changed(self._job_changed)
        self._tokens: dict[bytes, None] = {}
        """Tokens with pending notifications that are not in flight, in the order of their arrival."""
        self._for_job: dict[bytes, None] = {}
        """The same of tokens for which the job pushes. It is empty while there is no working job."""
        self._in_flight: dict[bytes, bool] = {}
        """Tokens from being read until their outcome is written. True means that newer notifications wait."""
        self._stale: set[bytes] = set()
        """Tokens that were in the store otherwise when they were read: an outcome of the job has changed them since."""
        self._backing_off: set[bytes] = set()
        """Tokens in flight that the job has given back, to be handed over again later."""
        self._by_router: set[bytes] = set()
        """Those that the job could not push to, or not in time: the next attempts are made from here."""
        self._on_trial = False
        """The job could not reach the provider, and has not since: few tokens are handed over at a time."""
        self._attempts: dict[bytes, int] = {}
        """Failed attempts of each token whose push is to be repeated."""
        self._unshared = 0
        """Places since the last one that control pushes got as their share."""
        self._retries = RetrySchedule(settings)
        self.control = ControlPushes(
            name,
            self._submit_control,
            settings,
            counters,
            outcomes,
            self._retries,
            self._awake.set,
            self._invalidate,
        )

    @property
    def waiting(self) -> int:
        return len(self._tokens) + len(self._for_job) + len(self.control) + len(self._retries)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def tokens_in_flight(self) -> list[bytes]:
        """Return the tokens in flight, without those that wait for another attempt."""
        return [token_id for token_id in self._in_flight if token_id not in self._attempts]

    def add(self, token_id: bytes) -> None:
        """Note that the token has pending notifications."""
        if token_id in self._in_flight:
            self._in_flight[token_id] = True
        else:
            self._queue(token_id)
            self._awake.set()

    def _queue(self, token_id: bytes) -> None:
        # The job pushes to some Web Push services only. Which one a token has is known when it is read.
        by_job = (
            self._name is not _WEB_PUSH
            and token_id not in self._by_router
            and self._engines.job_of(token_id) is not None
        )
        (self._for_job if by_job else self._tokens)[token_id] = None

    def _job_changed(self) -> None:
        """Continue: the job has room again, is away, or is back."""
        if self._had_job != (self._engines.job is not None):
            self._had_job = not self._had_job
            tokens, self._tokens, self._for_job = {**self._tokens, **self._for_job}, {}, {}
            for token_id in tokens:
                self._queue(token_id)
        self._awake.set()

    async def run(self) -> None:
        while True:
            await self._wait_for_pushes()
            await self.provider.wait_for_room()
            try:
                await self._send_some()
            except StoreError as error:
                await pause_after("reading notifications", error)

    async def _wait_for_pushes(self) -> None:
        while True:
            now = self._loop.time()
            self._retries.run_due(now)
            wake_at = self._retries.next_at
            if self._tokens or (self._for_job and self._job_room) or self.control:
                paused_until = self._retries.paused_until
                if now >= paused_until:
                    return
                wake_at = paused_until if wake_at is None else min(wake_at, paused_until)
            self._awake.clear()
            if wake_at is None:
                await self._awake.wait()
                continue
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._awake.wait()
            except TimeoutError:
                continue

    @property
    def _job_room(self) -> int:
        return 0 if (job := self._engines.job) is None else job.room

    async def _send_some(self) -> None:
        room = max(1, self.provider.room)
        room -= self.control.send_some(self._control_room(room))
        most = self._settings.batch
        handed = _taken(self._for_job, min(self._job_room, TRIAL if self._on_trial else most))
        batch = _taken(self._tokens, min(room, most)) + handed
        if not batch:
            return
        if handed and self._on_trial:
            self._retries.pause(self._settings.retry_initial)  # until the answers are there
        for token_id in batch:
            self._in_flight[token_id] = False
        self._stale.clear()
        with_room = frozenset(handed)
        try:
            dues = await self._store.due_pushes(batch)
        except BaseException:
            for token_id in batch:
                del self._in_flight[token_id]
                self._queue(token_id)
            raise
        sent: list[NotificationPush] = []
        for due in dues:
            try:
                if (push := self._send_messages(due, with_room)) is not None:
                    sent.append(push)
            except Exception:
                # A token with a damaged record must not hold up the others of its batch.
                logger.exception("a push could not be made; its notifications stay pending")
                self._in_flight.pop(due.token.token_id, None)
        self._outcomes.attempted(sent)
        if len(dues) < len(batch):
            for token_id in set(batch).difference([due.token.token_id for due in dues]):
                self._attempts.pop(token_id, None)
                self._finish(token_id)

    def _control_room(self, room: int) -> int:
        """Return how many of the free places control pushes may use: all that messages do not need, and a share."""
        if not self.control:
            return 0
        unneeded = room - len(self._tokens)
        if unneeded >= len(self.control):
            return unneeded
        self._unshared += room
        places = room + len(self._in_flight) + self.control.in_flight
        share = min(self._unshared // CONTROL_SHARE, -(-places // CONTROL_SHARE) - self.control.in_flight)
        self._unshared %= CONTROL_SHARE
        return max(share, unneeded, 0)

    def _send_messages(self, due: DuePush, with_room: Collection[bytes]) -> NotificationPush | None:
        """Send the next push to a token, and return it. Returns None if nothing was sent.

        `with_room`: the tokens for which the job has room.
        """
        token = due.token
        token_id = token.token_id
        if token.device_token.provider is not self._name:
            self._attempts.pop(token_id, None)
            self._by_router.discard(token_id)
            del self._in_flight[token_id]
            self._reroute(token_id, token.device_token.provider)
            return None
        job = None if token_id in self._by_router else self._engines.job_for(token)
        if self._waits_for_job(token_id, job):
            return None
        if job is not None:
            if token_id not in with_room and (self._on_trial or not job.room):
                del self._in_flight[token_id]
                self._for_job[token_id] = None
                return None
            job.give(due, self._attempts.get(token_id, 0), self._settings.notification_ttl, self)
            self._finish(token_id)
            return None
        push = choose_notifications(token, due.notifications, self._attempts.get(token_id, 0))
        if push is None:
            self._finish(token_id)
            return None
        if not push.chosen:
            self._settle_too_large(token, due.notifications, push.attempt)
            return None
        request = message_request(push, self._randomness.new_id(), self._settings.notification_ttl)
        self.provider.submit(request, partial(self._answered, push, self._loop.time()))
        return push

    def _waits_for_job(self, token_id: bytes, pushing: HandOver | None) -> bool:
        """Whether an outcome of the job keeps a token that was just read from being pushed now.

        `pushing` is the job if it is to push to the token.
        """
        job = self._engines.handover
        if job is None:
            return False
        if token_id in self._stale:
            if token_id not in self._backing_off:
                self._again(token_id)
            return True
        if job.holds(token_id) and pushing is None:
            del self._in_flight[token_id]
            self._engines.hold(token_id, self.add)
            return True
        return False

    def _submit_control(self, push: ControlPush, answered: Callable[[PushOutcome], None]) -> None:
        job = None if push.by_router else self._engines.job_for(push.token)
        if job is None:
            self.provider.submit(push.request, answered)
            return
        kind = RowKind.PERIODIC if push.periodic else RowKind.VERIFICATION
        job.give_control(kind, self._name, push.request, partial(self._control_answered, push, answered))

    def _control_answered(
        self, push: ControlPush, answered: Callable[[PushOutcome], None], outcome: PushOutcome
    ) -> None:
        if outcome in JOB_FAILURES:
            self._engines.did_not_push(push.token)
            push.by_router = True
        answered(outcome)

    def job_answered(self, answer: JobAnswer) -> None:
        """Continue as if this lane had pushed it. The attempt is reported only now, when it is known."""
        job = self._engines.handover
        assert job is not None
        token_id, outcome = answer.token.token_id, answer.outcome
        push = NotificationPush(answer.token, (), answer.notifications, b"", False, answer.attempt, SPARK)
        if answer.pushed:
            self._outcomes.attempted([push])
        if isinstance(outcome, RetryLater):
            if not answer.repeats:
                self._given_back(job, answer, outcome)
            elif answer.pushed:
                self._counters.pushes_retried += self._counts
            return
        self._on_trial = False
        invalid = isinstance(outcome, TokenInvalid) and outcome.concerns(answer.token.registered_at)
        settled = partial(self._job_settled, job, token_id, answer.ids, ended=invalid)
        if outcome == PushRefused(TOO_LARGE):
            self._settle(push, TOO_LARGE, settled)
            return
        self._answered(push, self._loop.time() - answer.seconds, outcome, settled)

    def _given_back(self, job: HandOver, answer: JobAnswer, outcome: RetryLater) -> None:
        """Hand the token over again after a delay, or push to it from here if the job cannot."""
        token_id = answer.token.token_id
        if outcome in JOB_FAILURES:
            self._engines.did_not_push(answer.token)
            self._by_router.add(token_id)
        self._on_trial |= outcome.scope is RetryScope.PROVIDER
        job.release(answer.ids)
        job.release_token(token_id)
        self._stale.add(token_id)
        self._backing_off.add(token_id)
        for waiting in (self._tokens, self._for_job):
            waiting.pop(token_id, None)
        self._engines.forget_held(token_id)
        self._in_flight[token_id] = True
        if answer.pushed:
            self._try_again(token_id, answer.attempt, outcome)
            return
        self._attempts[token_id] = answer.attempt
        self._retries.add(
            self._retries.delay(max(answer.attempt, 1), outcome), partial(self._again, token_id)
        )
        self._awake.set()

    def _job_settled(self, job: HandOver, token_id: bytes, ids: Sequence[int], *, ended: bool) -> None:
        """Let go of the rows, or of all of the token if it has ended: their outcome is in the store.

        If the token is just being read, it is read again.
        """
        job.release(ids)
        if ended:
            job.release_token(token_id)
        self._stale.add(token_id)
        if not job.holds(token_id):
            self._engines.let_go(token_id)

    def taken_back(self, token_id: bytes) -> None:
        """Push to the token from here: the job is away."""
        self._engines.forget_held(token_id)
        self.add(token_id)

    def _answered(
        self,
        push: NotificationPush,
        sent_at: float,
        outcome: PushOutcome,
        settled: Callable[[], None] | None = None,
    ) -> None:
        """Continue with the outcome of a push. `settled` is called when it is in the store."""
        if self._counts:
            self._counters.latencies.provider_answer.observe(self._loop.time() - sent_at)
        token = push.token
        if isinstance(outcome, RetryLater):
            self._try_again(token.token_id, push.attempt, outcome)
            return
        if push.attempt:
            self._attempts.pop(token.token_id, None)
        if isinstance(outcome, Accepted):  # nearly always
            self._count(push.pending, accepted=True)
            self._settle(push, ACCEPTED, settled)
            return
        self._count(push.pending, accepted=False)
        match outcome:
            case TokenInvalid() if outcome.concerns(token.registered_at):
                self._invalidate(token, outcome, settled)
            case TokenInvalid():
                self._settle(push, "stale_refusal", settled)
            case PushRefused(reason):
                self._settle(push, reason, settled)

    def _try_again(self, token_id: bytes, attempt: int, outcome: RetryLater) -> None:
        self._counters.pushes_retried += self._counts
        self._attempts[token_id] = attempt + 1
        self._retries.add(self._retries.delay(attempt, outcome), partial(self._again, token_id))
        self._awake.set()

    def _again(self, token_id: bytes) -> None:
        """Queue a token whose push is due for another attempt."""
        self._in_flight.pop(token_id, None)
        self._backing_off.discard(token_id)
        self._queue(token_id)

    def _count(self, pending: Sequence[PendingNotification], *, accepted: bool) -> None:
        """Count the outcome of a message push."""
        if not self._counts:
            return
        self._counters.notifications_delivered += accepted
        self._counters.notifications_failed += not accepted
        own = self._counters.own
        if own.domains:
            hosts = [each.queue.router.hosts for each in pending]
            own.count_push(own.delivered if accepted else own.failed, hosts)

    def _settle(
        self, push: NotificationPush, outcome: str, settled: Callable[[], None] | None = None
    ) -> None:
        token_id, provider, attempt, engine = push.token.token_id, self._name, push.attempt, push.engine
        outcomes = [
            SettledNotification(
                token_id,
                each.subscription_id,
                each.nonce,
                outcome,
                each.queue,
                provider,
                each.received_at,
                attempt,
                engine,
            )
            for each in push.pending
        ]
        self._outcomes.settle(outcomes, settled or partial(self._finish, token_id, push.more))

    def _settle_too_large(
        self, token: TokenRecord, notifications: Sequence[LastNotification], attempt: int
    ) -> None:
        """Fail the oldest pending notification, which is larger than a push, so that the next ones get their turn."""
        oldest = _pending(notifications)[:1]
        self._settle(NotificationPush(token, (), oldest, b"", True, attempt, ""), TOO_LARGE)

    def _invalidate(
        self, token: TokenRecord, outcome: TokenInvalid, settled: Callable[[], None] | None = None
    ) -> None:
        self._counters.tokens_invalid += self._counts
        status = TokenStatus(TokenState.INVALID, outcome.reason)
        self._outcomes.invalidate(token, status, settled or partial(self._finish, token.token_id))

    def _finish(self, token_id: bytes, more: bool = False) -> None:
        """Let the token be read again: its outcome is in the store."""
        self._by_router.discard(token_id)
        if self._in_flight.pop(token_id, False) or more:
            self.add(token_id)


def _taken(tokens: dict[bytes, None], most: int) -> list[bytes]:
    """Remove the oldest tokens, and return them."""
    taken = list(islice(tokens, most))
    for token_id in taken:
        del tokens[token_id]
    return taken


def _pending(notifications: Sequence[LastNotification]) -> list[PendingNotification]:
    """Return the pending ones, oldest first."""
    return [each for each in notifications if isinstance(each, PendingNotification)]
