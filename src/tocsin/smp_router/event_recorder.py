"""Writes the delivery events of an SMP router."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.smp_router.session.events import NamedNotification


class SmpEventRecorder:
    """Writes the stages of notifications to the event log."""

    def __init__(self, log: EventLog, keys: PseudonymKeys, instance: str, host: str) -> None:
        self._log = log
        self._keys = keys
        self._instance = instance
        self._host = host

    def record(self, stage: Stage, notifications: Sequence[NamedNotification]) -> None:
        if not notifications:
            return
        at, mono = int(time.time() * 1_000_000), time.monotonic_ns() // 1000
        events = []
        for notifier_id, nonce, sent_at in notifications:
            period = self._keys.at(sent_at)
            name = period.notification(notifier_id, nonce)
            events.append(
                DeliveryEvent(
                    id=f"{name}.{stage}",
                    stage=stage,
                    at=at,
                    mono=mono,
                    router=self._instance,
                    period=period.name,
                    notification=name,
                    queue=period.queue(notifier_id),
                    smp_host=self._host,
                )
            )
        self._log.append(events)
