"""Reports of an NTF router: delivery events for the event log, and observed latencies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.events.event_encoder import START, EventEncoder, EventSubject, engine_end, size_end
from tocsin.events.event_log import EventLog
from tocsin.events.event_losses import EventLosses
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.delivery.pushes import INLINE, SPARK, NotificationPush
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.records import (
    ACCEPTED,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    Results,
    SettledNotification,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import (
    SubscriptionStatus,
    TokenStatus,
    subscription_status_text,
)
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION

_PROVIDER_TEXTS: Final = {provider: provider.text for provider in PushProvider}
_ENGINE_ENDS: Final = {engine: engine_end(engine) for engine in ("", INLINE, SPARK)}
_UNCOUNTED: Final = PushProvider.APNS_NULL


class NtfEventRecorder:
    """Writes delivery events and observes latencies. Without a log it only observes."""

    def __init__(
        self, log: EventLog | None, keys: PseudonymKeys | None, instance: str, latencies: NtfLatencies
    ) -> None:
        self._log = log
        self._latencies = latencies
        self._encoder = None if keys is None else EventEncoder(keys, instance)
        self._unknown = UnknownQueueLimit()

    @property
    def logged(self) -> bool:
        return self._log is not None

    def received(
        self, router: RouterAddress, notifications: Sequence[ReceivedNotification], results: Results
    ) -> None:
        if self._log is None or self._encoder is None:
            return
        encoder, host = self._encoder, router.location.hosts[0]
        encoder.begin()
        middle, keep = encoder.middle(Stage.RECEIVED), encoder.keep
        route, route_to, size, end = b"", None, -1, b""  # mostly the same for all of them
        unknown = self._unknown.allowed(router.location, results.count(NotRecorded.UNKNOWN_QUEUE))
        made: list[bytes] = []
        count = 0
        for (notifier_id, nonce, meta, at, _), result in zip(notifications, results, strict=True):
            if isinstance(result, Recorded):
                token_id, provider, superseded, superseded_at = result
                if provider is not route_to:
                    route, route_to = encoder.route(host, _PROVIDER_TEXTS[provider]), provider
                if len(meta) != size:
                    size = len(meta)
                    end = size_end(size)
                if superseded is not None:
                    before = at if superseded_at is None else superseded_at
                    text = _PROVIDER_TEXTS[provider]
                    gone = EventSubject(notifier_id, superseded, before, host, token_id, text)
                    made.append(encoder.last(Stage.SUPERSEDED, gone))
                    count += 1
                name, head, part = keep(notifier_id, nonce, at, token_id, route)
                made += (START, name, middle, head, name, part, end)
                count += 1
            elif result is NotRecorded.UNKNOWN_QUEUE:
                if unknown:
                    unknown -= 1
                    about = EventSubject(notifier_id, nonce, at, host)
                    made.append(encoder.first(Stage.UNKNOWN_QUEUE, about, len(meta)))
                    count += 1
                else:
                    self._log.left_out += 1
        if made:
            self._log.append(made, count)

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        if self._log is None or self._encoder is None:
            return
        encoder = self._encoder
        encoder.begin()
        find, middle = encoder.find, encoder.attempt_middle(0)
        made: list[bytes] = []
        count = 0
        for push in pushes:
            number, pending, end = push.attempt, push.pending, _ENGINE_ENDS[push.engine]
            count += len(pending)
            for each in pending:
                router, notifier_id = each.queue
                known = None if number else find(notifier_id + each.nonce)
                if known is not None:
                    name, head, part = known
                    made += (START, name, middle, head, name, part, end)
                    continue
                token = push.token
                host, provider = router.hosts[0], _PROVIDER_TEXTS[token.device_token.provider]
                about = EventSubject(
                    notifier_id, each.nonce, each.received_at, host, token.token_id, provider
                )
                made.append(encoder.attempt(about, number, push.engine))
        self._log.append_later(made, count)

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        self._observe(settled)
        if self._log is None or self._encoder is None:
            return
        encoder = self._encoder
        encoder.begin()
        take, middle = encoder.take, encoder.middle(Stage.ACCEPTED)
        made: list[bytes] = []
        for each in settled:
            if each.outcome != ACCEPTED:
                line = encoder.last(Stage.FAILED, _subject(each), each.outcome, each.attempt, each.engine)
                made.append(line)
                continue
            known = None if each.attempt else take(each.queue.notifier_id + each.nonce, None)
            if known is not None:
                name, head, part = known
                made += (START, name, middle, head, name, part, _ENGINE_ENDS[each.engine])
            else:
                subject = _subject(each)
                made.append(encoder.last(Stage.ACCEPTED, subject, attempt=each.attempt, engine=each.engine))
        self._log.append(made, len(settled))

    def _observe(self, settled: Sequence[SettledNotification]) -> None:
        """Observe how long deliveries took. Many notifications arrive in one block, at one time."""
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
        if self._log is None or self._encoder is None:
            return
        self._encoder.begin()
        line = self._encoder.token_change(
            token.token_id,
            token.device_token.provider.text,
            "" if before is None else before.text(INVALID_REASON_VERSION),
            "" if after is None else after.text(INVALID_REASON_VERSION),
            cause,
        )
        self._log.append([line], 1)

    def subscriptions_changed(
        self,
        router: RouterLocation,
        changed: Sequence[tuple[bytes, SubscriptionStatus | None]],
        cause: str,
    ) -> None:
        if self._log is None or self._encoder is None or not changed:
            return
        encoder, host = self._encoder, router.hosts[0]
        encoder.begin()
        lines = [
            encoder.subscription_change(
                notifier_id,
                host,
                "" if status is None else subscription_status_text(status).split(" ")[0],
                cause,
            )
            for notifier_id, status in changed
        ]
        self._log.append(lines, len(lines))


class GuardedNtfEvents:
    """Implements `NtfEvents` over another one whose failures are counted, and hurt nobody."""

    def __init__(self, events: NtfEvents, losses: EventLosses) -> None:
        self._events = events
        self._losses = losses

    @property
    def logged(self) -> bool:
        return self._events.logged

    def received(
        self, router: RouterAddress, notifications: Sequence[ReceivedNotification], results: Results
    ) -> None:
        try:
            self._events.received(router, notifications, results)
        except Exception as error:
            self._losses.add(len(notifications), error)

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        try:
            self._events.attempted(pushes)
        except Exception as error:
            self._losses.add(sum(len(push.pending) for push in pushes), error)

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        try:
            self._events.settled(settled)
        except Exception as error:
            self._losses.add(len(settled), error)

    def token_changed(
        self, token: TokenRecord, before: TokenStatus | None, after: TokenStatus | None, cause: str
    ) -> None:
        try:
            self._events.token_changed(token, before, after, cause)
        except Exception as error:
            self._losses.add(1, error)

    def subscriptions_changed(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus | None]], cause: str
    ) -> None:
        try:
            self._events.subscriptions_changed(router, changed, cause)
        except Exception as error:
            self._losses.add(len(changed), error)


def _subject(each: SettledNotification) -> EventSubject:
    router, notifier_id = each.queue
    return EventSubject(
        notifier_id,
        each.nonce,
        each.received_at,
        router.hosts[0],
        each.token_id,
        _PROVIDER_TEXTS[each.provider],
    )


EVENTS_PER_INTERVAL: Final = 1000
INTERVAL_SECONDS: Final = 60.0


class UnknownQueueLimit:
    """Limits the events about unknown queues: one count for each SMP router that caused some in this interval."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._events: dict[RouterLocation, int] = {}

    def allowed(self, router: RouterLocation, wanted: int) -> int:
        """Return how many of the wanted events may be written now."""
        if not wanted:
            return 0
        now = self._now()
        if now - self._began >= INTERVAL_SECONDS:
            self._began = now
            self._events.clear()
        written = self._events.get(router, 0)
        allowed = min(wanted, EVENTS_PER_INTERVAL - written)
        self._events[router] = written + allowed
        return allowed
