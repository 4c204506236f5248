"""One provider's pushes: which token is next, and what is under way.

A token is in at most one push at a time, which keeps its order; notifications that come meanwhile wait in the store
and share the next push. What fails in a way that may pass is tried again (`retry_schedule`). The tokens with messages
need no bound: there are no more of them than tokens in the store. Verification and periodic pushes wait beside them
(`other_pushes`) and go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.handover_lines import TOO_LARGE
from tocsin.ntf_router.delivery.other_pushes import OtherPushes
from tocsin.ntf_router.delivery.outcome_writer import OutcomeWriter
from tocsin.ntf_router.delivery.push_contents import PushContents, choose_notifications
from tocsin.ntf_router.delivery.push_requests import message_request
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.session.events import Attempt, NtfEvents
from tocsin.ntf_router.session.requests import counts
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import (
    ACCEPTED,
    DuePush,
    LastNotification,
    PendingNotification,
    Settled,
    TokenRecord,
)
from tocsin.operate.clock import Clock
from tocsin.operate.randomness import Randomness
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.push.provider import Accepted, Provider, PushOutcome, Refused, RetryLater, TokenInvalid

STORE_RETRY_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What the lanes of all providers share."""

    store: NtfStore
    outcomes: OutcomeWriter
    settings: DeliverySettings
    counters: NtfCounters
    clock: Clock
    randomness: Randomness
    events: NtfEvents
    hand_over: Callable[[bytes, PushProvider], None]
    """For a token whose provider has changed."""
    job: HandOver | None = None
    """Who pushes messages in our place, with `delivery_engine: spark`."""


class DeliveryLane:
    def __init__(self, name: PushProvider, provider: Provider, parts: LaneParts) -> None:
        self.provider = provider
        self._name = name
        self._store = parts.store
        self._outcomes = parts.outcomes
        self._settings = parts.settings
        self._counters = parts.counters
        self._randomness = parts.randomness
        self._events = parts.events
        self._hand_over = parts.hand_over
        self._job = parts.job
        self._counts = counts(name)
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        if self._job is not None:
            self._job.when_room(self._awake.set)
        self._tokens: dict[bytes, None] = {}
        """With something pending, not under way; in the order in which they came."""
        self._under_way: dict[bytes, bool] = {}
        """Tokens from being read until their outcome is written; True if newer notifications wait."""
        self._attempts: dict[bytes, int] = {}
        """How often the push of a token failed that is to be tried again."""
        self._retries = RetrySchedule(parts.settings)
        self.others = OtherPushes(
            name,
            provider,
            parts.settings,
            parts.counters,
            parts.clock,
            parts.outcomes,
            self._retries,
            self._awake.set,
            self._invalidate,
        )

    @property
    def waiting(self) -> int:
        return len(self._tokens) + len(self.others) + len(self._retries)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def add(self, token_id: bytes) -> None:
        """The token has something pending."""
        if token_id in self._under_way:
            self._under_way[token_id] = True
        else:
            self._tokens[token_id] = None
            self._awake.set()

    async def run(self) -> None:
        while True:
            await self._wait_for_work()
            await self.provider.wait_for_room()
            try:
                await self._send_some()
            except StoreError as error:
                logger.error("notifications cannot be read, trying again: %s", error)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    async def _wait_for_work(self) -> None:
        while True:
            now = self._loop.time()
            self._retries.run_due(now)
            wake_at = self._retries.next_at
            if (self._tokens and self._job_has_room) or self.others:
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
    def _job_has_room(self) -> bool:
        return self._job is None or self._job.room > 0

    async def _send_some(self) -> None:
        room = self.others.send_some(max(1, self.provider.room))
        if self._job is not None:
            room = self._job.room
        batch = list(islice(self._tokens, min(room, self._settings.batch)))
        if not batch:
            return
        for token_id in batch:
            del self._tokens[token_id]
            self._under_way[token_id] = False
        try:
            dues = await self._store.due_pushes(batch)
        except BaseException:
            for token_id in batch:
                del self._under_way[token_id]
                self._tokens[token_id] = None
            raise
        attempts: list[Attempt] = []
        for due in dues:
            try:
                if (attempt := self._send_messages(due)) is not None:
                    attempts.append(attempt)
            except Exception:
                # One token whose record is damaged must not hold up those that were read with it.
                logger.exception("a push could not be made; its notifications stay pending")
                self._under_way.pop(due.token.token_id, None)
        self._events.attempted(attempts)
        if len(dues) < len(batch):
            for token_id in set(batch).difference([due.token.token_id for due in dues]):
                self._attempts.pop(token_id, None)
                self._finish(token_id)

    def _send_messages(self, due: DuePush) -> Attempt | None:
        """None if nothing is sent."""
        token = due.token
        token_id = token.token_id
        if token.device_token.provider is not self._name:
            self._attempts.pop(token_id, None)
            del self._under_way[token_id]
            self._hand_over(token_id, token.device_token.provider)
            return None
        if self._job is not None:
            self._give_to_job(self._job, due)
            return None
        contents = choose_notifications(due.notifications)
        if contents is None:
            self._finish(token_id)
            return None
        attempt = self._attempts.get(token_id, 0)
        if not contents.chosen:  # the oldest one is longer than a push
            self._settle(token, _pending(due.notifications)[:1], TOO_LARGE, attempt, more=True)
            return None
        request = message_request(token, contents, self._randomness.new_id(), self._settings.notification_ttl)
        sent_at = self._loop.time()
        self.provider.submit(request, partial(self._answered, token, contents, attempt, sent_at))
        return Attempt(token, contents.pending, attempt)

    def _give_to_job(self, job: HandOver, due: DuePush) -> None:
        token_id, pending = due.token.token_id, _pending(due.notifications)
        if not pending:
            self._finish(token_id)
            return
        attempt = self._attempts.get(token_id, 0)
        answered = partial(self._job_answered, due.token, pending, attempt, self._loop.time())
        job.give(due, self._settings.notification_ttl, answered)

    def _job_answered(
        self,
        token: TokenRecord,
        pending: Sequence[PendingNotification],
        attempt: int,
        given_at: float,
        outcome: PushOutcome,
        taken: int,
        more: bool,
    ) -> None:
        """From here on all is as if we had pushed it ourselves; that it was tried is known only now."""
        pending = pending[:taken]
        if outcome == Refused(TOO_LARGE):
            self._settle(token, pending, TOO_LARGE, attempt, more=True)
            return
        self._events.attempted([Attempt(token, pending, attempt)])
        self._answered(token, PushContents((), pending, b"", more), attempt, given_at, outcome)

    def _answered(
        self, token: TokenRecord, contents: PushContents, attempt: int, sent_at: float, outcome: PushOutcome
    ) -> None:
        if self._counts:
            self._counters.latencies.provider_answer.observe(self._loop.time() - sent_at)
        if isinstance(outcome, RetryLater):
            self._try_again(token.token_id, attempt, outcome)
            return
        if attempt:
            self._attempts.pop(token.token_id, None)
        pending, more = contents.pending, contents.more
        if isinstance(outcome, Accepted):  # nearly always
            self._count(pending, accepted=True)
            self._settle(token, pending, ACCEPTED, attempt, more=more)
            return
        self._count(pending, accepted=False)
        match outcome:
            case TokenInvalid() if outcome.concerns(token.registered_at):
                self._invalidate(token, outcome)
            case TokenInvalid():
                self._settle(token, pending, "stale_refusal", attempt, more=more)
            case Refused(reason):
                self._settle(token, pending, reason, attempt, more=more)

    def _try_again(self, token_id: bytes, attempt: int, outcome: RetryLater) -> None:
        self._counters.pushes_retried += self._counts
        self._attempts[token_id] = attempt + 1
        self._retries.add(self._retries.delay(attempt, outcome), partial(self._again, token_id))
        self._awake.set()

    def _again(self, token_id: bytes) -> None:
        """A token's push is due for another attempt."""
        self._under_way.pop(token_id, None)
        self._tokens[token_id] = None

    def _count(self, pending: Sequence[PendingNotification], *, accepted: bool) -> None:
        """The end of a message push."""
        if not self._counts:
            return
        self._counters.notifications_delivered += accepted
        self._counters.notifications_failed += not accepted
        own = self._counters.own
        if own.domains:
            hosts = [each.queue.router.hosts for each in pending]
            own.count_push(own.delivered if accepted else own.failed, hosts)

    def _settle(
        self,
        token: TokenRecord,
        pending: Sequence[PendingNotification],
        outcome: str,
        attempt: int,
        *,
        more: bool,
    ) -> None:
        token_id, provider = token.token_id, self._name
        settled = [
            Settled(
                token_id,
                each.subscription_id,
                each.nonce,
                outcome,
                each.queue,
                provider,
                each.received_at,
                attempt,
            )
            for each in pending
        ]
        self._outcomes.settle(settled, partial(self._finish, token_id, more))

    def _invalidate(self, token: TokenRecord, outcome: TokenInvalid) -> None:
        self._counters.tokens_invalid += self._counts
        status = TokenStatus(TokenState.INVALID, outcome.reason)
        self._events.token_changed(token, token.status, status, "the provider")
        self._outcomes.invalidate(token, status, partial(self._finish, token.token_id))

    def _finish(self, token_id: bytes, more: bool = False) -> None:
        """The outcome is in the store: what came meanwhile can be read."""
        if self._under_way.pop(token_id, False) or more:
            self.add(token_id)


def _pending(notifications: Sequence[LastNotification]) -> list[PendingNotification]:
    """Oldest first."""
    return [each for each in notifications if isinstance(each, PendingNotification)]
