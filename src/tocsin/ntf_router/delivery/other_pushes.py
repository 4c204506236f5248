"""Verification and periodic pushes of one provider.

Their queue is bounded: when it is full the oldest is shed and counted. Nothing of them is in the store: devices ask for
a code again, and a periodic push that was not sent stays due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tocsin.ntf_router.delivery.outcome_writer import OutcomeWriter
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.session.requests import counts
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.operate.clock import Clock
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import (
    Accepted,
    Provider,
    PushOutcome,
    PushRequest,
    Refused,
    RetryLater,
    TokenInvalid,
)


@dataclass(slots=True)
class OtherPush:
    """A verification or periodic push."""

    token: TokenRecord
    request: PushRequest
    periodic: bool
    give_up_at: float
    """Loop time."""
    attempt: int = 0


class OtherPushes:
    def __init__(
        self,
        name: PushProvider,
        provider: Provider,
        settings: DeliverySettings,
        counters: NtfCounters,
        clock: Clock,
        outcomes: OutcomeWriter,
        retries: RetrySchedule,
        wake: Callable[[], None],
        invalidate: Callable[[TokenRecord, TokenInvalid], None],
    ) -> None:
        """`wake` is called when there is something to send; `invalidate` for tokens that the provider refuses."""
        self._provider = provider
        self._limit = settings.other_pushes
        self._counts = counts(name)
        self._counters = counters
        self._clock = clock
        self._outcomes = outcomes
        self._retries = retries
        self._wake = wake
        self._invalidate = invalidate
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[OtherPush] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, push: OtherPush) -> None:
        if len(self._waiting) >= self._limit:
            self._counters.pushes_shed += 1
            self._failed(self._waiting.popleft())
        self._waiting.append(push)
        self._wake()

    def send_some(self, room: int) -> int:
        """Oldest first, as far as there is room; says how much is left."""
        while self._waiting and room:
            push = self._waiting.popleft()
            self._provider.submit(push.request, partial(self._answered, push))
            room -= 1
        return room

    def _answered(self, push: OtherPush, outcome: PushOutcome) -> None:
        match outcome:
            case Accepted():
                self._delivered(push)
            case RetryLater():
                delay = self._retries.delay(push.attempt, outcome)
                if self._loop.time() + delay > push.give_up_at:
                    self._failed(push)
                    return
                self._counters.pushes_retried += self._counts
                push.attempt += 1
                self._retries.add(delay, partial(self._waiting.append, push))
                self._wake()
            case TokenInvalid():
                self._counters.notifications_verification_invalid_tkn += self._counts and not push.periodic
                self._failed(push)
                if outcome.concerns(push.token.registered_at):
                    self._invalidate(push.token, outcome)
            case Refused():
                self._failed(push)

    def _delivered(self, push: OtherPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_delivered += self._counts
            self._outcomes.periodic_sent(push.token.token_id, self._clock.now())
        else:
            self._counters.notifications_verification_delivered += self._counts
            self._outcomes.confirm(push.token)

    def _failed(self, push: OtherPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_failed += self._counts
        else:
            self._counters.notifications_verification_failed += self._counts
