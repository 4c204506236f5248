"""Reports of what happens to notifications at the SMP router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tocsin.events.delivery_events import Stage


class NamedNotification(NamedTuple):
    """The identity of a notification."""

    notifier_id: bytes
    nonce: bytes
    sent_at: int
    """When its message was sent. This selects the period whose key hides the notification in the event log."""


class SmpEvents(Protocol):
    """Receives the stages that notifications reach. Calls must be quick and must not raise."""

    def record(self, stage: Stage, notifications: Sequence[NamedNotification]) -> None:
        """Record ENQUEUED, SENT, EXPIRED or DROPPED. SENT is recorded again when a notification is sent again."""


class NoSmpEvents:
    """Ignores all reports."""

    def record(self, stage: Stage, notifications: Sequence[NamedNotification]) -> None:
        pass
