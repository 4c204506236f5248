"""Control pushes of one provider: verification and periodic pushes.

Each device token has at most one verification push here: anyone may register a device token as often as he likes, and
the device needs the newest code only. Codes come at a limited rate, and one that came too early rests until its turn.
The number of pushes is bounded: beyond the bound the oldest is shed and counted. They are not in the store: devices
ask for a code again, and a periodic push that was not sent stays due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tocsin.ntf_router.delivery.outcomes import OutcomeRecorder
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.session.rates import RateLimit, RateTable
from tocsin.ntf_router.session.requests import counts
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, PushRequest, RetryLater, TokenInvalid


@dataclass(slots=True)
class ControlPush:
    """A verification or periodic push."""

    token: TokenRecord
    request: PushRequest
    periodic: bool
    give_up_at: float
    """Loop time."""
    attempt: int = 0
    by_router: bool = False
    """The job could not push it, or not in time: the next attempts are made from here."""

    @property
    def key(self) -> tuple[bool, bytes]:
        """Pushes with the same key replace each other."""
        return self.periodic, self.token.token_id if self.periodic else self.request.device_token


class ControlPushes:
    """Waiting pushes, and the answers to those that were sent."""

    def __init__(
        self,
        name: PushProvider,
        submit: Callable[[ControlPush, Callable[[PushOutcome], None]], None],
        settings: DeliverySettings,
        counters: NtfCounters,
        outcomes: OutcomeRecorder,
        retries: RetrySchedule,
        wake: Callable[[], None],
        invalidate: Callable[[TokenRecord, TokenInvalid], None],
    ) -> None:
        """`submit` sends a push and calls back with its outcome.

        `wake` is called when a push waits to be sent, `invalidate` when the provider refuses a token.
        """
        self._submit = submit
        self._limit = settings.other_pushes
        self._counts = counts(name)
        self._counters = counters
        self._outcomes = outcomes
        self._retries = retries
        self._wake = wake
        self._invalidate = invalidate
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[bool, bytes], ControlPush] = {}
        """Pushes to be sent now, in the order of their arrival."""
        self._resting: dict[tuple[bool, bytes], ControlPush] = {}
        """Pushes to be sent later. Each has one entry in the schedule of retries."""
        self._sent: dict[str, ControlPush] = {}
        """Pushes without an answer yet, by their push id, which depends on the code."""
        # Codes for the null provider go nowhere, and all who test a router share its device token.
        rate = RateLimit(settings.verification_burst, settings.verification_interval)
        self._rates = RateTable(rate) if self._counts else None

    def __len__(self) -> int:
        """The number of pushes to be sent now."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    @property
    def periodic_in_flight(self) -> bool:
        return any(push.periodic for push in self._sent.values())

    def add(self, push: ControlPush) -> None:
        """Take a push. An older one of the same device makes place for it, and it takes over the older one's turn."""
        if push.request.push_id in self._sent:
            self._merge(push)
            return
        for pushes in (self._waiting, self._resting):
            if push.key in pushes:
                self._merge(pushes[push.key])
                pushes[push.key] = push
                return
        if not self._make_room():
            self._counters.pushes_shed += 1
            self._failed(push)
            return
        delay = self._delay(push)
        if delay:
            push.give_up_at += delay
            self._rest(push, delay)
        else:
            self._wait(push)

    def send_some(self, room: int) -> int:
        """Send the oldest pushes, at most `room` of them. Returns the number."""
        sent = 0
        now = self._loop.time()
        while self._waiting and sent < room:
            push = self._waiting.pop(next(iter(self._waiting)))
            if now > push.give_up_at:  # it waited through an outage
                self._failed(push)
                continue
            self._sent[push.request.push_id] = push
            self._submit(push, partial(self._answered, push))
            sent += 1
        return sent

    def _make_room(self) -> bool:
        """Whether there is room for another push. The oldest one that waits is shed for it."""
        if len(self._waiting) + len(self._resting) + len(self._sent) < self._limit:
            return True
        if not self._waiting:
            return False
        self._counters.pushes_shed += 1
        self._failed(self._waiting.pop(next(iter(self._waiting))))
        return True

    def _delay(self, push: ControlPush) -> float:
        if push.periodic or self._rates is None:
            return 0.0
        return self._rates.reserve(push.request.device_token, self._loop.time())

    def _wait(self, push: ControlPush) -> None:
        self._waiting[push.key] = push
        self._wake()

    def _rest(self, push: ControlPush, delay: float) -> None:
        self._resting[push.key] = push
        self._retries.add(delay, partial(self._rested, push.key))
        self._wake()

    def _rested(self, key: tuple[bool, bytes]) -> None:
        self._waiting[key] = self._resting.pop(key)

    def _merge(self, push: ControlPush) -> None:
        """Count a push that is not sent, because another one does its work."""
        self._counters.notifications_verification_merged += self._counts and not push.periodic

    def _answered(self, push: ControlPush, outcome: PushOutcome) -> None:
        self._sent.pop(push.request.push_id, None)
        match outcome:
            case Accepted():
                self._delivered(push)
            case RetryLater():
                self._try_again(push, outcome)
            case TokenInvalid():
                self._counters.notifications_verification_invalid_tkn += self._counts and not push.periodic
                self._failed(push)
                if outcome.concerns(push.token.registered_at):
                    self._invalidate(push.token, outcome)
            case PushRefused():
                self._failed(push)

    def _try_again(self, push: ControlPush, outcome: RetryLater) -> None:
        delay = self._retries.delay(push.attempt, outcome)
        if self._loop.time() + delay > push.give_up_at:
            self._failed(push)
            return
        if push.key in self._waiting or push.key in self._resting:  # a newer code came meanwhile
            self._merge(push)
            return
        self._counters.pushes_retried += self._counts
        push.attempt += 1
        self._rest(push, delay)

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
