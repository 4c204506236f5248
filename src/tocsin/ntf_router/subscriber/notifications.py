"""Stores notifications from SMP routers, passes them to the delivery (ntf.md 4.7), and acknowledges them.

Those that SMP routers send again are recognised. The store knows the last notification of each queue. An SMP router
that lost its connection to us repeats everything that it sent in the last seconds, which can be several of one queue.
Two generations of names cost less than a time for each: every name is remembered for at least `RECENT_SECONDS`, unless
more than `MOST_RECENT` come in that time.

Direct sessions acknowledge what is stored (decision 0009). The count is cumulative, so one command acknowledges
everything that was stored until then. It costs a block in each direction, more than a notification, so it waits for
others: for a few seconds, or until there are many. What was stored and not acknowledged when this process is killed
comes again, and is recognised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from tocsin.clients import SmpClient
from tocsin.errors import ClientError, ResponseTimeout, StoreError, TocsinError
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NotificationStore
from tocsin.ntf_router.store.records import NotRecorded, ReceivedNotification, Recorded, Results
from tocsin.ntf_router.store.retry import pause_after
from tocsin.operate.clock import FineClock
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.smp.responses import NotificationReceived

MAX_META_BYTES: Final = 512
"""Metadata has 144 bytes. Neither our SMP router nor the reference's sends more than this."""
RECENT_SECONDS: Final = 60.0
MOST_RECENT: Final = 50_000
"""Names of one generation."""
ACKNOWLEDGE_AFTER: Final = 3.0
"""Seconds that a notification may wait for its acknowledgement."""
ACKNOWLEDGE_FROM: Final = 500
"""Notifications that are acknowledged without that delay: far fewer than an SMP router lets wait (decision 0009)."""
ACKNOWLEDGEMENT_PAUSE: Final = 0.05
"""Seconds between two acknowledgements."""
LAST_ACKNOWLEDGEMENT: Final = 1.0
"""Seconds for the last acknowledgement of a session that we end. What it does not confirm comes again."""
_UNCOUNTED: Final = PushProvider.APNS_NULL

logger = logging.getLogger(__name__)


class RecentNotifications:
    def __init__(self) -> None:
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()
        self._began = 0.0

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def __contains__(self, name: bytes) -> bool:
        return name in self._newer or name in self._older

    def add(self, names: Iterable[bytes], now: float) -> None:
        """Remember names. `now` in seconds of any clock that does not go back far."""
        if now - self._began > RECENT_SECONDS or len(self._newer) >= MOST_RECENT:
            self._older, self._newer = self._newer, set()
            self._began = now
        self._newer.update(names)


class NotificationReceiver:
    """Receives the notifications of all connections to SMP routers."""

    def __init__(
        self,
        store: NotificationStore,
        counters: NtfCounters,
        clock: FineClock,
        events: NtfEvents,
        notify: Callable[[bytes, PushProvider], None],
        recover: Callable[[], Awaitable[object]],
    ) -> None:
        """`recover` makes the delivery queue everything that is pending."""
        self._store = store
        self._counters = counters
        self._clock = clock
        self._events = events
        self._notify = notify
        self._recover = recover
        self._recent = RecentNotifications()

    async def receive(
        self, router: RouterAddress, notifications: Sequence[tuple[bytes, NotificationReceived, int]]
    ) -> None:
        """Return when they are stored. While the store fails they wait here, and the SMP router waits too."""
        now = self._clock.exactly()
        recent = self._recent
        batch = [
            ReceivedNotification(notifier_id, event.nonce, event.sealed_meta, now, block)
            for notifier_id, event, block in notifications
            if len(event.sealed_meta) <= MAX_META_BYTES
        ]
        self._counters.notifications_malformed += len(notifications) - len(batch)
        if recent:
            received = len(batch)
            batch = self._not_repeated(batch)
            self._counters.notifications_repeated += received - len(batch)
        failed = False
        while batch:
            try:
                results = await self._store.add_notifications(
                    router.location, batch, lambda decided: self._events.received(router, batch, decided)
                )
                break
            except StoreError as error:
                failed = True
                self._counters.count_store_error()
                await pause_after(f"storing notifications of {router.name}", error)
        else:
            return
        if failed and NotRecorded.DUPLICATE in results:
            # A failed attempt may have stored them before the delivery learned of them.
            await self._recover()
        counted = self._take_up(batch, results, now)
        self._counters.notifications_received += counted
        self._counters.latencies.stored.observe(self._clock.exactly() - now, counted)
        unknown = results.count(NotRecorded.UNKNOWN_QUEUE)
        self._counters.notifications_received_auth += unknown
        self._counters.notifications_repeated += results.count(NotRecorded.DUPLICATE)
        if (own := self._counters.own.host_of(router.location.hosts)) is not None:
            self._counters.own.received.update({own: counted} if counted else {})
            self._counters.own.received_auth.update({own: unknown} if unknown else {})

    def _not_repeated(self, batch: list[ReceivedNotification]) -> list[ReceivedNotification]:
        """Leave out what was received recently, and what an SMP router has sent again before it in the same block.

        The notifications of a queue come in order, so a newer one than these is stored already.
        """
        known = {
            (each.notifier_id, each.block): place
            for place, each in enumerate(batch)
            if each.notifier_id + each.nonce in self._recent
        }
        if not known:
            return batch
        return [
            each for place, each in enumerate(batch) if place > known.get((each.notifier_id, each.block), -1)
        ]

    def _take_up(self, batch: Sequence[ReceivedNotification], results: Results, now: float) -> int:
        """Pass recorded notifications to the delivery. Returns how many the statistics count."""
        counted = superseded = 0
        names: list[bytes] = []
        notified = self._counters.active.notified
        for notification, result in zip(batch, results, strict=True):
            if result is NotRecorded.UNKNOWN_QUEUE:
                continue
            names.append(notification.notifier_id + notification.nonce)
            if not isinstance(result, Recorded):
                continue
            if result.provider is not _UNCOUNTED:
                counted += 1
                superseded += result.superseded is not None
                notified(result.token_id, notification.notifier_id, now)
            self._notify(result.token_id, result.provider)
        self._recent.add(names, now)
        self._counters.notifications_superseded += superseded
        return counted


class Acknowledgements:
    """The notifications of one session that are stored. `run` acknowledges them until it is cancelled."""

    def __init__(self, client: SmpClient) -> None:
        self._client = client
        self._stored = 0
        self._acknowledged = 0
        self._more = asyncio.Event()
        self._many = asyncio.Event()

    def stored(self, count: int) -> None:
        """Count the next notifications of the session, in the order of their arrival."""
        self._stored += count
        if self._stored > self._acknowledged:
            self._more.set()
            if self._stored - self._acknowledged >= ACKNOWLEDGE_FROM:
                self._many.set()

    async def run(self) -> None:
        """Raises ConnectionLost. Returns if the SMP router does not want acknowledgements."""
        while self._client.direct:
            await self._more.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(ACKNOWLEDGE_AFTER):
                    await self._many.wait()
            try:
                await self._acknowledge()
            except ResponseTimeout:
                self._more.set()
            except ClientError as error:
                logger.warning("an SMP router refuses acknowledgements of its notifications: %s", error)
                return
            await asyncio.sleep(ACKNOWLEDGEMENT_PAUSE)

    async def finish(self) -> None:
        """Acknowledge what is stored by now, because the session ends. Failing does no harm."""
        if self._client.direct and self._stored > self._acknowledged:
            with suppress(TocsinError, TimeoutError):
                async with asyncio.timeout(LAST_ACKNOWLEDGEMENT):
                    await self._acknowledge()

    async def _acknowledge(self) -> None:
        self._more.clear()
        self._many.clear()
        count = self._stored
        await self._client.acknowledge_notifications(count)
        self._acknowledged = count
