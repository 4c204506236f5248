"""Writes the delivery events of an SMP router."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.events.delivery_events import PRIORITY_NAMES, Stage
from tocsin.events.event_encoder import EventEncoder, EventSubject
from tocsin.events.event_log import EventLog
from tocsin.events.event_losses import EventLosses
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.smp_router.session.requests import NamedNotification, SmpEvents


class GuardedSmpEvents:
    """Implements `SmpEvents` over another one whose failures are counted, and hurt nobody."""

    def __init__(self, events: SmpEvents, losses: EventLosses) -> None:
        self._events = events
        self._losses = losses

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        try:
            self._events.record(stage, notifications, priority)
        except Exception as error:
            self._losses.add(len(notifications), error)


class SmpEventRecorder:
    """Writes the stages of notifications to the event log."""

    def __init__(self, log: EventLog, keys: PseudonymKeys, instance: str, host: str) -> None:
        self._log = log
        self._encoder = EventEncoder(keys, instance)
        self._host = host

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        if not notifications:
            return
        encoder, host, name = self._encoder, self._host, PRIORITY_NAMES[priority]
        encoder.begin()
        lines = [
            encoder.first(stage, EventSubject(notifier_id, nonce, sent_at, host), 0, name)
            for notifier_id, nonce, sent_at in notifications
        ]
        self._log.append(lines, len(lines))
