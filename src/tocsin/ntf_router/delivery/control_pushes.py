"""Control pushes of one provider: verification and periodic pushes.

Their queue is bounded: when it is full the oldest push is shed and counted. They are not in the store: devices ask
for a code again, and a periodic push that was not sent stays due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tocsin.ntf_router.delivery.outcomes import OutcomeRecorder
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.session.requests import counts
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import (
    Accepted,
    Provider,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    TokenInvalid,
)


@dataclass(slots=True)
class ControlPush:
    """A verification or periodic push."""

    token: TokenRecord
    request: PushRequest
    periodic: bool
    give_up_at: float
    """Loop time."""
    attempt: int = 0


class ControlPushes:
    """Waiting pushes, and the answers to those that were sent."""

    def __init__(
        self,
        name: PushProvider,
        provider: Provider,
        settings: DeliverySettings,
        counters: NtfCounters,
        outcomes: OutcomeRecorder,
        retries: RetrySchedule,
        wake: Callable[[], None],
        invalidate: Callable[[TokenRecord, TokenInvalid], None],
    ) -> None:
        """`wake` is called when a push waits to be sent, `invalidate` when the provider refuses a token."""
        self._provider = provider
        self._limit = settings.other_pushes
        self._counts = counts(name)
        self._counters = counters
        self._outcomes = outcomes
        self._retries = retries
        self._wake = wake
        self._invalidate = invalidate
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[ControlPush] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, push: ControlPush) -> None:
        if len(self._waiting) >= self._limit:
            self._counters.pushes_shed += 1
            self._failed(self._waiting.popleft())
        self._waiting.append(push)
        self._wake()

    def send_some(self, room: int) -> int:
        """Send the oldest pushes, at most `room` of them. Returns the remaining room."""
        while self._waiting and room:
            push = self._waiting.popleft()
            self._provider.submit(push.request, partial(self._answered, push))
            room -= 1
        return room

    def _answered(self, push: ControlPush, outcome: PushOutcome) -> None:
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
            case PushRefused():
                self._failed(push)

    def _delivered(self, push: ControlPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_delivered += self._counts
            self._outcomes.periodic_sent(push.token.token_id)
        else:
            self._counters.notifications_verification_delivered += self._counts
            self._outcomes.confirm(push.token)

    def _failed(self, push: ControlPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_failed += self._counts
        else:
            self._counters.notifications_verification_failed += self._counts
