"""Delivery events of an NTF router: what the event log and the latency histograms get to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tocsin.observability.delivery_events import DeliveryEvent, Stage
from tocsin.observability.event_log import EventLog
from tocsin.observability.ntf_latencies import NtfLatencies
from tocsin.observability.pseudonyms import PseudonymKeys, PseudonymPeriod
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    subscription_status_text,
)
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION
from tocsin.routers.ntf.work import counts
from tocsin.stores.ntf_records import (
    Ended,
    LastNotification,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    Settled,
    TokenRecord,
)

ACCEPTED = "accepted"
_PROVIDER_TEXTS: Final = {provider: provider.text for provider in PushProvider}


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
        host = router.location.hosts[0]
        writing = _Writing(self._keys, self._instance)
        for notification, result in zip(notifications, results, strict=True):
            if result is NotRecorded.DUPLICATE:
                continue
            notifier_id, received_at = notification.notifier_id, notification.received_at
            token_id = provider = None
            stage = Stage.UNKNOWN_QUEUE
            if isinstance(result, Recorded):
                stage, token_id, provider = Stage.RECEIVED, result.token_id, result.provider
                if result.superseded is not None:
                    before = received_at if result.superseded_at is None else result.superseded_at
                    writing.add(
                        Stage.SUPERSEDED, notifier_id, result.superseded, before, host, token_id, provider
                    )
            size = len(notification.sealed_meta)
            writing.add(
                stage, notifier_id, notification.nonce, received_at, host, token_id, provider, size=size
            )
        if writing.events:
            self._log.append(writing.events)

    def ended(self, ended: Sequence[Ended]) -> None:
        if self._log is None or self._keys is None:
            return
        writing = _Writing(self._keys, self._instance)
        for each in ended:
            queue = each.queue
            writing.add(
                Stage.FAILED,
                queue.notifier_id,
                each.nonce,
                each.received_at,
                queue.router.hosts[0],
                each.token_id,
                each.provider,
                reason=each.outcome,
            )
        self._log.append(writing.events)

    def attempted(self, token: TokenRecord, notifications: Sequence[LastNotification], attempt: int) -> None:
        if self._log is None or self._keys is None:
            return
        writing = _Writing(self._keys, self._instance)
        for each in notifications:
            if each.pending:
                writing.add(
                    Stage.ATTEMPTED,
                    each.queue.notifier_id,
                    each.nonce,
                    each.received_at,
                    each.queue.router.hosts[0],
                    token.token_id,
                    token.device_token.provider,
                    attempt=attempt,
                )
        if writing.events:
            self._log.append_later(writing.events)

    def settled(self, settled: Sequence[Settled]) -> None:
        now = time.time()
        for each in settled:
            if each.outcome == ACCEPTED and counts(each.provider):
                self._latencies.received_to_accepted.observe(now - each.received_at)
        if self._log is None or self._keys is None:
            return
        writing = _Writing(self._keys, self._instance)
        for each in settled:
            accepted = each.outcome == ACCEPTED
            writing.add(
                Stage.ACCEPTED if accepted else Stage.FAILED,
                each.queue.notifier_id,
                each.nonce,
                each.received_at,
                each.queue.router.hosts[0],
                each.token_id,
                each.provider,
                reason="" if accepted else each.outcome,
                attempt=each.attempt,
            )
        self._log.append(writing.events)

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

    @staticmethod
    def _now(keys: PseudonymKeys) -> tuple[PseudonymPeriod, int, int]:
        return keys.current(), int(time.time() * 1_000_000), time.monotonic_ns() // 1000


class _Writing:
    """Events of one moment."""

    def __init__(self, keys: PseudonymKeys, instance: str) -> None:
        self.events: list[DeliveryEvent] = []
        self._keys = keys
        self._instance = instance
        self._at, self._mono = int(time.time() * 1_000_000), time.monotonic_ns() // 1000

    def add(
        self,
        stage: Stage,
        notifier_id: bytes,
        nonce: bytes,
        received_at: float,
        smp_host: str,
        token_id: bytes | None,
        provider: PushProvider | None,
        *,
        reason: str = "",
        attempt: int = 0,
        size: int = 0,
    ) -> None:
        """All stages of a notification are hidden by the key of the day on which it was received.

        An event's id depends on the notification and the stage alone, so that a repeat after a crash is recognised.
        """
        period = self._keys.at(received_at)
        notification = period.notification(notifier_id, nonce)
        number = f".{attempt}" if stage is Stage.ATTEMPTED else ""
        self.events.append(
            DeliveryEvent(
                id=f"{notification}.{stage}{number}",
                stage=stage,
                at=self._at,
                mono=self._mono,
                router=self._instance,
                period=period.name,
                notification=notification,
                queue=period.queue(notifier_id),
                token="" if token_id is None else period.token(token_id),
                smp_host=smp_host,
                provider="" if provider is None else _PROVIDER_TEXTS[provider],
                reason=reason,
                attempt=attempt,
                size=size,
            )
        )
