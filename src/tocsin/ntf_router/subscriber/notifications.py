"""Notifications from SMP routers into the store, and the delivery told of them (ntf.md 4.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tocsin.errors import StoreError
from tocsin.ntf_router.session.events import NtfEvents
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NotificationStore
from tocsin.ntf_router.store.records import NotRecorded, ReceivedNotification, Recorded
from tocsin.operate.clock import FineClock
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.smp.responses import NotificationReceived

MAX_META_BYTES: Final = 512
"""The metadata is 144 bytes; more than this no SMP router of ours or the reference's sends."""
STORE_RETRY_SECONDS: Final = 1.0
_UNCOUNTED: Final = PushProvider.APNS_NULL

logger = logging.getLogger(__name__)


class Notifications:
    """Where the connections to SMP routers hand their notifications."""

    def __init__(
        self,
        store: NotificationStore,
        counters: NtfCounters,
        clock: FineClock,
        events: NtfEvents,
        notify: Callable[[bytes, PushProvider], None],
        recover: Callable[[], Awaitable[object]],
    ) -> None:
        """`recover` makes the delivery look for everything that is pending."""
        self._store = store
        self._counters = counters
        self._clock = clock
        self._events = events
        self._notify = notify
        self._recover = recover

    async def receive(
        self, router: RouterAddress, notifications: Sequence[tuple[bytes, NotificationReceived]]
    ) -> None:
        """Returns when they are stored. While the store is away they wait here, and the SMP router waits too."""
        now = self._clock.exactly()
        batch = [
            ReceivedNotification(notifier_id, event.nonce, event.sealed_meta, now)
            for notifier_id, event in notifications
            if len(event.sealed_meta) <= MAX_META_BYTES
        ]
        self._counters.notifications_malformed += len(notifications) - len(batch)
        failed = False
        while batch:
            try:
                results = await self._store.add_notifications(
                    router.location, batch, lambda decided: self._events.received(router, batch, decided)
                )
                break
            except StoreError as error:
                failed = True
                self._counters.store_errors += 1
                logger.error("notifications of %s wait for the store: %s", router.name, error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
        else:
            return
        if failed and NotRecorded.DUPLICATE in results:
            # They may have been stored by the attempt that failed, and nobody was told.
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

    def _take_up(
        self, batch: Sequence[ReceivedNotification], results: Sequence[Recorded | NotRecorded], now: float
    ) -> int:
        """Tells the delivery of those that were recorded; says how many the statistics count."""
        counted = superseded = 0
        notified = self._counters.active.notified
        for notification, result in zip(batch, results, strict=True):
            if not isinstance(result, Recorded):
                continue
            if result.provider is not _UNCOUNTED:
                counted += 1
                superseded += result.superseded is not None
                notified(result.token_id, notification.notifier_id, now)
            self._notify(result.token_id, result.provider)
        self._counters.notifications_superseded += superseded
        return counted
