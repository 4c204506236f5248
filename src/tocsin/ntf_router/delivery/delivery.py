"""The delivery of pending notifications: pushes to the providers, and their outcomes.

Theory of operation. The store knows which notifications are pending; the delivery only remembers which tokens have
some. Each provider has its own lane, so that an outage of one does not slow another:

    waiting ──take a batch──► read from the store ──► send ──answer──► write the outcome to the store
       ▲                                               │                            │
       └────────────── later (retry) ◄─────────────────┴── again (newer ones came) ◄┘

A crash loses nothing: the router finds pending notifications in the store when it starts. Verification and periodic
pushes are not stored: devices ask for a code again, and a periodic push that was not sent stays due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.control_pushes import ControlPush
from tocsin.ntf_router.delivery.delivery_lane import DeliveryLane
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.outcomes import OutcomeRecorder
from tocsin.ntf_router.delivery.pushes import code_request, periodic_request
from tocsin.ntf_router.delivery.token_engines import TokenEngines
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.ntf_router.store.retry import until_stored
from tocsin.operate.clock import Clock
from tocsin.operate.randomness import Randomness
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Provider, PushRequest

RECOVERY_PAGE = 10_000
RESTART_SECONDS = 1.0
"""Pause after an unexpected failure."""

logger = logging.getLogger(__name__)


class PushDelivery:
    """The lanes of all providers. They run inside `async with`."""

    def __init__(
        self,
        store: NtfStore,
        providers: Mapping[PushProvider, Provider],
        settings: DeliverySettings,
        counters: NtfCounters,
        clock: Clock,
        randomness: Randomness,
        events: NtfEvents,
        job: HandOver | None = None,
    ) -> None:
        """A `job` pushes to its tokens in place of the lanes while it works."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._outcomes = OutcomeRecorder(store, events, clock)
        self.job = job
        self.engines = TokenEngines(settings, job, settings.choices)
        self.lanes = {
            name: DeliveryLane(
                name,
                provider,
                store,
                self._outcomes,
                randomness,
                self.notify,
                self.engines,
                settings=settings,
                counters=counters,
            )
            for name, provider in providers.items()
        }
        self._reminders: dict[bytes, tuple[int, float]] = {}
        """The due time of each token's periodic push, and the loop time until which it is tried. Oldest first."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> PushDelivery:
        workers = [*(lane.run for lane in self.lanes.values()), self._outcomes.run]
        if self.job is not None:
            workers.append(self.job.run)
        self._tasks = [asyncio.create_task(self._keep_running(worker)) for worker in workers]
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Give up pushes in flight, which stay pending in the store, and write known outcomes.

        If the store cannot be reached, the next start pushes the same again, with the same push ids.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._outcomes.flush()
        except StoreError as error:
            logger.error("could not write the outcomes of pushes, which will be pushed again: %s", error)

    async def _keep_running(self, worker: Callable[[], Awaitable[None]]) -> None:
        """Restart a worker after any failure, for example with a damaged record."""
        while True:
            try:
                await worker()
            except Exception:
                logger.exception("a delivery worker failed; it restarts in %s s", RESTART_SECONDS)
                await asyncio.sleep(RESTART_SECONDS)

    async def recover(self) -> int:
        """Queue all tokens with pending notifications. Returns how many there are."""
        found = 0
        after: bytes | None = None
        while True:
            read_page = partial(self._store.tokens_with_pending, after, RECOVERY_PAGE)
            token_ids = await until_stored("reading pending notifications", read_page)
            for token_id in token_ids:
                self.notify(token_id, None)
            found += len(token_ids)
            if len(token_ids) < RECOVERY_PAGE:
                return found
            after = token_ids[-1]

    def notify(self, token_id: bytes, provider: PushProvider | None) -> None:
        """Queue a token with pending notifications. If its provider is not known, any lane takes it and finds out.

        If its provider is not configured, the notifications stay pending until they expire.
        """
        lane = next(iter(self.lanes.values())) if provider is None else self.lanes.get(provider)
        if lane is not None:
            lane.add(token_id)

    def verify(self, token: TokenRecord) -> None:
        """Push the token's code to its device."""
        request = code_request(token, self._randomness.new_id(), self._expires_at())
        self._add_control(token, request, periodic=False)

    def check_messages(self, token: TokenRecord) -> None:
        """Push a reminder to check for messages, unless the same reminder is in flight."""
        due_at = (token.cron_sent_at or 0) + token.cron_minutes * 60
        now = asyncio.get_running_loop().time()
        while self._reminders:
            token_id, (_, tried_until) = next(iter(self._reminders.items()))
            if tried_until > now:
                break
            del self._reminders[token_id]
        known = self._reminders.get(token.token_id)
        if known is not None and known[0] == due_at:
            return
        self._reminders.pop(token.token_id, None)
        self._reminders[token.token_id] = due_at, now + self._settings.other_push_ttl
        request = periodic_request(token, due_at, self._expires_at())
        self._add_control(token, request, periodic=True)

    def _add_control(self, token: TokenRecord, request: PushRequest, *, periodic: bool) -> None:
        lane = self.lanes.get(token.device_token.provider)
        if lane is not None:
            give_up_at = asyncio.get_running_loop().time() + self._settings.other_push_ttl
            lane.control.add(ControlPush(token, request, periodic, give_up_at))

    def _expires_at(self) -> int:
        return int(self._clock.now() + self._settings.other_push_ttl)

    def tokens_in_flight(self) -> Iterator[bytes]:
        """Yield the tokens whose push is at a provider, or whose outcome is being written."""
        for lane in self.lanes.values():
            yield from lane.tokens_in_flight()

    @property
    def periodic_unsettled(self) -> bool:
        """Whether a periodic push is at a provider, or the beginning of its next period is not written yet."""
        return self._outcomes.periodic_unwritten or any(
            lane.control.periodic_in_flight for lane in self.lanes.values()
        )

    @property
    def waiting(self) -> int:
        """The number of tokens and control pushes that wait to be sent."""
        return sum(lane.waiting for lane in self.lanes.values())
