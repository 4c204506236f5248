"""Delivery events of an NTF router: what the event log and the latency histograms get to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tocsin.observability.delivery_events import DeliveryEvent, Stage
from tocsin.observability.event_log import EventLog
from tocsin.observability.notification_lines import NotificationLines, Notified
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
from tocsin.routers.ntf.events import Attempt
from tocsin.routers.ntf.unknown_queue_limit import UnknownQueueLimit
from tocsin.routers.ntf.work import counts
from tocsin.stores.ntf_records import (
    ACCEPTED,
    Ended,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    Settled,
    TokenRecord,
)

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
        self._lines = None if keys is None else NotificationLines(keys, instance)
        self._unknown = UnknownQueueLimit()
        self._changes = 0

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        if self._log is None or self._lines is None:
            return
        lines, host = self._lines, router.location.hosts[0]
        received, superseded = Stage.RECEIVED, Stage.SUPERSEDED
        lines.begin()
        unknown = self._unknown.allowed(router.location, results.count(NotRecorded.UNKNOWN_QUEUE))
        made: list[bytes] = []
        for (notifier_id, nonce, meta, at), result in zip(notifications, results, strict=True):
            if isinstance(result, Recorded):
                token_id, provider = result.token_id, _PROVIDER_TEXTS[result.provider]
                if result.superseded is not None:
                    before = at if result.superseded_at is None else result.superseded_at
                    gone = Notified(notifier_id, result.superseded, before, host, token_id, provider)
                    made.append(lines.last(superseded, gone))
                about = Notified(notifier_id, nonce, at, host, token_id, provider)
                made.append(lines.first(received, about, len(meta)))
            elif result is NotRecorded.UNKNOWN_QUEUE:
                if unknown:
                    unknown -= 1
                    about = Notified(notifier_id, nonce, at, host)
                    made.append(lines.first(Stage.UNKNOWN_QUEUE, about, len(meta)))
                else:
                    self._log.left_out += 1
        if made:
            self._log.append_lines(made)

    def ended(self, ended: Sequence[Ended]) -> None:
        if self._log is None or self._lines is None:
            return
        lines = self._lines
        lines.begin()
        self._log.append_lines(
            [lines.last(Stage.FAILED, _notified(each), reason=each.outcome) for each in ended]
        )

    def attempted(self, attempts: Sequence[Attempt]) -> None:
        if self._log is None or self._lines is None:
            return
        lines = self._lines
        lines.begin()
        made = []
        for token, pending, number in attempts:
            token_id, provider = token.token_id, _PROVIDER_TEXTS[token.device_token.provider]
            for each in pending:
                router, notifier_id = each.queue
                about = Notified(
                    notifier_id, each.nonce, each.received_at, router.hosts[0], token_id, provider
                )
                made.append(lines.attempt(about, number))
        self._log.append_lines_later(made)

    def settled(self, settled: Sequence[Settled]) -> None:
        now, observe = time.time(), self._latencies.received_to_accepted.observe
        accepted = [each for each in settled if each.outcome == ACCEPTED]
        for each in accepted:
            if counts(each.provider):
                observe(now - each.received_at)
        if self._log is None or self._lines is None:
            return
        lines, stage = self._lines, Stage.ACCEPTED
        lines.begin()
        made = [lines.last(stage, _notified(each), attempt=each.attempt) for each in accepted]
        if len(accepted) < len(settled):
            stage = Stage.FAILED
            made += [
                lines.last(stage, _notified(each), each.outcome, each.attempt)
                for each in settled
                if each.outcome != ACCEPTED
            ]
        self._log.append_lines(made)

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


def _notified(each: Settled | Ended) -> Notified:
    router, notifier_id = each.queue
    return Notified(
        notifier_id,
        each.nonce,
        each.received_at,
        router.hosts[0],
        each.token_id,
        _PROVIDER_TEXTS[each.provider],
    )
