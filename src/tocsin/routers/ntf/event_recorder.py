"""Delivery events of an NTF router: what the event log and the latency histograms get to know."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tocsin.observability.delivery_events import DeliveryEvent, Stage
from tocsin.observability.event_log import EventLog
from tocsin.observability.ntf_latencies import NtfLatencies
from tocsin.observability.pseudonyms import PseudonymKeys, PseudonymPeriod
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    subscription_status_text,
)
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION
from tocsin.routers.ntf.work import counts
from tocsin.stores.ntf_records import (
    LastNotification,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    TokenRecord,
)

ACCEPTED = "accepted"


class EventRecorder:
    """Implements `routers.ntf.events.NtfEvents`."""

    def __init__(
        self, log: EventLog | None, keys: PseudonymKeys | None, instance: str, latencies: NtfLatencies
    ) -> None:
        self._log = log
        self._keys = keys
        self._instance = instance
        self._latencies = latencies
        self._changes = 0

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        if self._log is None or self._keys is None:
            return
        period, at, mono = self._now(self._keys)
        host = router.location.hosts[0]
        events: list[DeliveryEvent] = []
        for notification, result in zip(notifications, results, strict=True):
            if result is NotRecorded.DUPLICATE:
                continue
            notifier_id = notification.notifier_id
            queue = period.queue(notifier_id)
            if isinstance(result, NotRecorded):
                stage, token, provider = Stage.UNKNOWN_QUEUE, "", ""
            else:
                stage, token, provider = Stage.RECEIVED, period.token(result.token_id), result.provider.text
                if result.superseded is not None:
                    replaced = period.notification(notifier_id, result.superseded)
                    events.append(
                        self._event(
                            Stage.SUPERSEDED, replaced, queue, token, host, provider, period, at, mono
                        )
                    )
            name = period.notification(notifier_id, notification.nonce)
            events.append(
                self._event(
                    stage,
                    name,
                    queue,
                    token,
                    host,
                    provider,
                    period,
                    at,
                    mono,
                    size=len(notification.sealed_meta),
                )
            )
        if events:
            self._log.append(events)

    def attempted(self, token: TokenRecord, notifications: Sequence[LastNotification], attempt: int) -> None:
        self._record(Stage.ATTEMPTED, token, notifications, "", attempt)

    def settled(
        self, token: TokenRecord, notifications: Sequence[LastNotification], outcome: str, attempt: int
    ) -> None:
        if outcome == ACCEPTED:
            if counts(token.device_token.provider):
                now = time.time()
                for each in notifications:
                    self._latencies.received_to_accepted.observe(now - each.received_at)
            self._record(Stage.ACCEPTED, token, notifications, "", attempt)
        else:
            self._record(Stage.FAILED, token, notifications, outcome, attempt)

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        if self._log is None or self._keys is None:
            return
        period, at, mono = self._now(self._keys)
        self._changes += 1
        self._log.append(
            [
                DeliveryEvent(
                    id=f"{self._instance}-{at}-{self._changes}",
                    stage=Stage.TOKEN_CHANGED,
                    at=at,
                    mono=mono,
                    router=self._instance,
                    period=period.name,
                    token=period.token(token.token_id),
                    provider=token.device_token.provider.text,
                    from_status="" if before is None else before.text(INVALID_REASON_VERSION),
                    to_status="" if after is None else after.text(INVALID_REASON_VERSION),
                    cause=cause,
                )
            ]
        )

    def subscriptions_changed(
        self,
        router: RouterLocation,
        changed: Sequence[tuple[bytes, SubscriptionStatus | None]],
        cause: str,
    ) -> None:
        if self._log is None or self._keys is None or not changed:
            return
        period, at, mono = self._now(self._keys)
        events = []
        for notifier_id, status in changed:
            self._changes += 1
            events.append(
                DeliveryEvent(
                    id=f"{self._instance}-{at}-{self._changes}",
                    stage=Stage.SUBSCRIPTION_CHANGED,
                    at=at,
                    mono=mono,
                    router=self._instance,
                    period=period.name,
                    queue=period.queue(notifier_id),
                    smp_host=router.hosts[0],
                    to_status="" if status is None else subscription_status_text(status).split(" ")[0],
                    cause=cause,
                )
            )
        self._log.append(events)

    def _record(
        self,
        stage: Stage,
        token: TokenRecord,
        notifications: Sequence[LastNotification],
        reason: str,
        attempt: int,
    ) -> None:
        if self._log is None or self._keys is None:
            return
        period, at, mono = self._now(self._keys)
        owner, provider = period.token(token.token_id), token.device_token.provider.text
        self._log.append(
            [
                self._event(
                    stage,
                    period.notification(each.queue.notifier_id, each.nonce),
                    period.queue(each.queue.notifier_id),
                    owner,
                    each.queue.router.hosts[0],
                    provider,
                    period,
                    at,
                    mono,
                    reason=reason,
                    attempt=attempt,
                )
                for each in notifications
                if each.pending
            ]
        )

    def _event(
        self,
        stage: Stage,
        notification: str,
        queue: str,
        token: str,
        smp_host: str,
        provider: str,
        period: PseudonymPeriod,
        at: int,
        mono: int,
        *,
        reason: str = "",
        attempt: int = 0,
        size: int = 0,
    ) -> DeliveryEvent:
        """Its id depends on the notification and the stage alone, so that a repeat after a crash is recognised."""
        number = f".{attempt}" if stage is Stage.ATTEMPTED else ""
        return DeliveryEvent(
            id=f"{notification}.{stage}{number}",
            stage=stage,
            at=at,
            mono=mono,
            router=self._instance,
            period=period.name,
            notification=notification,
            queue=queue,
            token=token,
            smp_host=smp_host,
            provider=provider,
            reason=reason,
            attempt=attempt,
            size=size,
        )

    @staticmethod
    def _now(keys: PseudonymKeys) -> tuple[PseudonymPeriod, int, int]:
        return keys.current(), int(time.time() * 1_000_000), time.monotonic_ns() // 1000
