"""Delivery events of an NTF router: what the event log and the latency histograms get to know."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.events.event_log import EventLog
from tocsin.events.notification_lines import END, START, NotificationLines, Notified, size_end
from tocsin.events.pseudonyms import PseudonymKeys, PseudonymPeriod
from tocsin.ntf_router.session.events import Attempt
from tocsin.ntf_router.statistics.latencies import NtfLatencies
from tocsin.ntf_router.store.records import (
    ACCEPTED,
    Ended,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    Settled,
    TokenRecord,
)
from tocsin.ntf_router.unknown_queue_limit import UnknownQueueLimit
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    subscription_status_text,
)
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION

_PROVIDER_TEXTS: Final = {provider: provider.text for provider in PushProvider}
_UNCOUNTED: Final = PushProvider.APNS_NULL


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
        lines.begin()
        middle, keep = lines.middle(Stage.RECEIVED), lines.keep
        way, way_to, size, end = b"", None, -1, b""  # mostly the same for all of them
        unknown = self._unknown.allowed(router.location, results.count(NotRecorded.UNKNOWN_QUEUE))
        made: list[bytes] = []
        count = 0
        for (notifier_id, nonce, meta, at), result in zip(notifications, results, strict=True):
            if isinstance(result, Recorded):
                token_id, provider, superseded, superseded_at = result
                if provider is not way_to:
                    way, way_to = lines.way(host, _PROVIDER_TEXTS[provider]), provider
                if len(meta) != size:
                    size = len(meta)
                    end = size_end(size)
                if superseded is not None:
                    before = at if superseded_at is None else superseded_at
                    text = _PROVIDER_TEXTS[provider]
                    gone = Notified(notifier_id, superseded, before, host, token_id, text)
                    made.append(lines.last(Stage.SUPERSEDED, gone))
                    count += 1
                name, head, part = keep(notifier_id, nonce, at, token_id, way)
                made += (START, name, middle, head, name, part, end)
                count += 1
            elif result is NotRecorded.UNKNOWN_QUEUE:
                if unknown:
                    unknown -= 1
                    about = Notified(notifier_id, nonce, at, host)
                    made.append(lines.first(Stage.UNKNOWN_QUEUE, about, len(meta)))
                    count += 1
                else:
                    self._log.left_out += 1
        if made:
            self._log.append_lines(made, count)

    def ended(self, ended: Sequence[Ended]) -> None:
        if self._log is None or self._lines is None:
            return
        lines = self._lines
        lines.begin()
        self._log.append_lines(
            [lines.last(Stage.FAILED, _notified(each), reason=each.outcome) for each in ended], len(ended)
        )

    def attempted(self, attempts: Sequence[Attempt]) -> None:
        if self._log is None or self._lines is None:
            return
        lines = self._lines
        lines.begin()
        find, middle = lines.find, lines.attempt_middle(0)
        made: list[bytes] = []
        count = 0
        for attempt in attempts:
            number, pending = attempt.number, attempt.pending
            count += len(pending)
            for each in pending:
                router, notifier_id = each.queue
                known = None if number else find(notifier_id + each.nonce)
                if known is not None:
                    name, head, part = known
                    made += (START, name, middle, head, name, part, END)
                    continue
                token = attempt.token
                host, provider = router.hosts[0], _PROVIDER_TEXTS[token.device_token.provider]
                about = Notified(notifier_id, each.nonce, each.received_at, host, token.token_id, provider)
                made.append(lines.attempt(about, number))
        self._log.append_lines_later(made, count)

    def settled(self, settled: Sequence[Settled]) -> None:
        self._observe(settled)
        if self._log is None or self._lines is None:
            return
        lines = self._lines
        lines.begin()
        take, middle = lines.take, lines.middle(Stage.ACCEPTED)
        made: list[bytes] = []
        for each in settled:
            if each.outcome != ACCEPTED:
                made.append(lines.last(Stage.FAILED, _notified(each), each.outcome, each.attempt))
                continue
            known = None if each.attempt else take(each.queue.notifier_id + each.nonce, None)
            if known is not None:
                name, head, part = known
                made += (START, name, middle, head, name, part, END)
            else:
                made.append(lines.last(Stage.ACCEPTED, _notified(each), attempt=each.attempt))
        self._log.append_lines(made, len(settled))

    def _observe(self, settled: Sequence[Settled]) -> None:
        """How long it took. Many came at one time, in one block."""
        times = Counter(
            [
                each.received_at
                for each in settled
                if each.outcome == ACCEPTED and each.provider is not _UNCOUNTED
            ]
        )
        now, observe = time.time(), self._latencies.received_to_accepted.observe
        for received_at, count in times.items():
            observe(now - received_at, count)

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
