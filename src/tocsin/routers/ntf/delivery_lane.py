"""One provider's pushes: which token is next, what is under way, what is tried again and when.

A token is in at most one push at a time, which keeps its order; notifications that come meanwhile wait in the store
and share the next push. A push that fails in a way that may pass is sent once more at once, then ever later. A
failure that concerns the provider as a whole pauses the lane.

Verification and periodic pushes have a queue of their own, which is bounded: when it is full the oldest is shed and
counted. The tokens with messages need no bound: there are no more of them than tokens in the store.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from tocsin.config.ntf_settings import DeliverySettings
from tocsin.crypto.boxes import box_key, seal
from tocsin.errors import StoreError
from tocsin.observability.ntf_counters import NtfCounters
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import PADDED_PUSH_BYTES, MessagePush, push_json
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.push.provider import (
    Accepted,
    Provider,
    PushOutcome,
    PushRequest,
    Refused,
    RetryLater,
    RetryScope,
    TokenInvalid,
    Urgency,
)
from tocsin.routers.ntf.events import NtfEvents
from tocsin.routers.ntf.outcome_writer import OutcomeWriter
from tocsin.routers.ntf.push_contents import PushContents, choose_notifications, message_push_id
from tocsin.routers.ntf.work import counts
from tocsin.routers.surroundings import Clock, Randomness
from tocsin.stores.ntf_records import DuePush, LastNotification, Settled, TokenRecord
from tocsin.stores.ntf_store import NtfStore
from tocsin.wire.padding import pad

ACCEPTED: Final = "accepted"
STORE_RETRY_SECONDS: Final = 1.0
JITTER: Final = 0.2

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OtherPush:
    """A verification or periodic push."""

    token: TokenRecord
    request: PushRequest
    periodic: bool
    give_up_at: float
    """Loop time."""
    attempt: int = 0


class DeliveryLane:
    def __init__(
        self,
        name: PushProvider,
        provider: Provider,
        store: NtfStore,
        outcomes: OutcomeWriter,
        settings: DeliverySettings,
        counters: NtfCounters,
        clock: Clock,
        randomness: Randomness,
        events: NtfEvents,
        hand_over: Callable[[bytes, PushProvider], None],
    ) -> None:
        self.provider = provider
        self._name = name
        self._store = store
        self._outcomes = outcomes
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._randomness = randomness
        self._events = events
        self._hand_over = hand_over
        self._counts = counts(name)
        self._loop = asyncio.get_running_loop()
        self._tokens: dict[bytes, None] = {}
        """With something pending, not under way; in the order in which they came."""
        self._under_way: dict[bytes, bool] = {}
        """Tokens from being read until their outcome is written; True if newer notifications wait."""
        self._others: deque[OtherPush] = deque()
        self._attempts: dict[bytes, int] = {}
        """How often the push of a token failed that is to be tried again."""
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._paused_until = 0.0
        self._awake = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._tokens) + len(self._others) + len(self._later)

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

    def add_other(self, push: OtherPush) -> None:
        if len(self._others) >= self._settings.other_pushes:
            self._counters.pushes_shed += 1
            self._other_failed(self._others.popleft())
        self._others.append(push)
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
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            wake_at = self._later[0][0] if self._later else None
            if self._tokens or self._others:
                if now >= self._paused_until:
                    return
                wake_at = self._paused_until if wake_at is None else min(wake_at, self._paused_until)
            self._awake.clear()
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._awake.wait()
            except TimeoutError:
                continue

    async def _send_some(self) -> None:
        room = max(1, self.provider.room)
        while self._others and room:
            self._send_other(self._others.popleft())
            room -= 1
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
        for due in dues:
            try:
                self._send_messages(due)
            except Exception:
                # One token whose record is damaged must not hold up those that were read with it.
                logger.exception("a push could not be made; its notifications stay pending")
                self._under_way.pop(due.token.token_id, None)
        for token_id in set(batch).difference(due.token.token_id for due in dues):
            self._attempts.pop(token_id, None)
            self._finish(token_id, more=False)

    def _send_messages(self, due: DuePush) -> None:
        token = due.token
        if token.device_token.provider is not self._name:
            self._attempts.pop(token.token_id, None)
            del self._under_way[token.token_id]
            self._hand_over(token.token_id, token.device_token.provider)
            return
        contents = choose_notifications(due.notifications)
        if contents is None:
            self._finish(token.token_id, more=False)
            return
        attempt = self._attempts.get(token.token_id, 0)
        if not contents.chosen:  # the oldest one is longer than a push
            oldest = next(each for each in due.notifications if each.pending)
            self._settle(token, [oldest], "too_large", attempt, more=True)
            return
        self._events.attempted(token, contents.chosen, attempt)
        sent_at = self._loop.time()
        answered = partial(self._messages_answered, token, contents, attempt, sent_at)
        self.provider.submit(self._message_request(token, contents), answered)

    def _message_request(self, token: TokenRecord, contents: PushContents) -> PushRequest:
        nonce = self._randomness.new_id()
        sealed = seal(box_key(token.dh_secret), nonce, pad(contents.text, PADDED_PUSH_BYTES))
        newest = contents.chosen[-1].received_at
        return PushRequest(
            token.device_token.token,
            push_json(MessagePush(nonce, sealed)),
            Urgency.ALERT,
            message_push_id(token.device_token.token, [each.nonce for each in contents.chosen]),
            int(newest + self._settings.notification_ttl),
        )

    def _messages_answered(
        self,
        token: TokenRecord,
        contents: PushContents,
        attempt: int,
        sent_at: float,
        outcome: PushOutcome,
    ) -> None:
        if self._counts:
            self._counters.latencies.provider_answer.observe(self._loop.time() - sent_at)
        token_id = token.token_id
        pending = [each for each in contents.chosen if each.pending]
        if isinstance(outcome, RetryLater):
            self._counters.pushes_retried += self._counts
            self._attempts[token_id] = attempt + 1
            self._call_later(self._delay(attempt, outcome), partial(self._again, token_id))
            return
        self._attempts.pop(token_id, None)
        self._count_messages(pending, accepted=isinstance(outcome, Accepted))
        match outcome:
            case Accepted():
                self._settle(token, pending, ACCEPTED, attempt, more=contents.more)
            case TokenInvalid():
                if _speaks_of_the_past(outcome, token):
                    self._settle(token, pending, "stale_refusal", attempt, more=contents.more)
                else:
                    self._invalidate(token, outcome)
            case Refused(reason):
                self._settle(token, pending, reason, attempt, more=contents.more)

    def _count_messages(self, pending: Sequence[LastNotification], *, accepted: bool) -> None:
        """The end of a message push."""
        if not self._counts:
            return
        self._counters.notifications_delivered += accepted
        self._counters.notifications_failed += not accepted
        own = self._counters.own
        if own.domains:
            hosts = [each.queue.router.hosts for each in pending]
            own.count_push(own.delivered if accepted else own.failed, hosts)

    def _again(self, token_id: bytes) -> None:
        """A token's push is due for another attempt."""
        self._under_way.pop(token_id, None)
        self._tokens[token_id] = None

    def _delay(self, attempt: int, outcome: RetryLater) -> float:
        if outcome.after is None and attempt == 0:
            return 0.0
        backed_off = self._settings.retry_initial * 2.0 ** min(max(attempt - 1, 0), 20)
        delay = min(self._settings.retry_maximum, backed_off if outcome.after is None else outcome.after)
        delay *= 1 + JITTER * random.random()  # noqa: S311 - so that they do not come back together
        if outcome.scope is RetryScope.PROVIDER:
            pause = min(delay, 8 * self._settings.retry_initial)
            self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + pause)
        return delay

    def _settle(
        self,
        token: TokenRecord,
        notifications: Sequence[LastNotification],
        outcome: str,
        attempt: int,
        *,
        more: bool,
    ) -> None:
        self._outcomes.settle(
            [
                Settled(
                    token.token_id, each.queue, each.nonce, outcome, self._name, each.received_at, attempt
                )
                for each in notifications
            ],
            partial(self._finish, token.token_id, more=more),
        )

    def _invalidate(self, token: TokenRecord, outcome: TokenInvalid) -> None:
        self._counters.tokens_invalid += self._counts
        status = TokenStatus(TokenState.INVALID, outcome.reason)
        self._events.token_changed(token, token.status, status, "the provider")
        self._outcomes.invalidate(token, status, partial(self._finish, token.token_id, more=False))

    def _finish(self, token_id: bytes, *, more: bool) -> None:
        """The outcome is in the store: what came meanwhile can be read."""
        if self._under_way.pop(token_id, False) or more:
            self.add(token_id)

    def _send_other(self, push: OtherPush) -> None:
        self.provider.submit(push.request, partial(self._other_answered, push))

    def _other_answered(self, push: OtherPush, outcome: PushOutcome) -> None:
        match outcome:
            case Accepted():
                self._other_delivered(push)
            case RetryLater():
                delay = self._delay(push.attempt, outcome)
                if asyncio.get_running_loop().time() + delay > push.give_up_at:
                    self._other_failed(push)
                    return
                self._counters.pushes_retried += self._counts
                push.attempt += 1
                self._call_later(delay, partial(self._others.append, push))
            case TokenInvalid():
                self._counters.notifications_verification_invalid_tkn += self._counts and not push.periodic
                self._other_failed(push)
                if not _speaks_of_the_past(outcome, push.token):
                    self._invalidate(push.token, outcome)
            case Refused():
                self._other_failed(push)

    def _other_delivered(self, push: OtherPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_delivered += self._counts
            self._outcomes.periodic_sent(push.token.token_id, self._clock.now())
        else:
            self._counters.notifications_verification_delivered += self._counts
            self._outcomes.confirm(push.token)

    def _other_failed(self, push: OtherPush) -> None:
        if push.periodic:
            self._counters.notifications_periodic_failed += self._counts
        else:
            self._counters.notifications_verification_failed += self._counts

    def _call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._later, (asyncio.get_running_loop().time() + delay, self._numbers, call))
        self._awake.set()


def _speaks_of_the_past(outcome: TokenInvalid, token: TokenRecord) -> bool:
    """The provider refuses an earlier life of this device token, before it was registered here."""
    return outcome.since is not None and outcome.since < token.registered_at
