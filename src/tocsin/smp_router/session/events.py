"""Who is told what becomes of notifications at the SMP router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Named(NamedTuple):
    """A notification."""

    notifier_id: bytes
    nonce: bytes
    sent_at: int
    """Of its message: the period whose key hides it in the event log."""


class SmpEvents(Protocol):
    """The event log. Calls must be quick and must not raise."""

    def enqueued(self, notification: Named) -> None:
        """Stored with its message."""

    def sent(self, notifications: Sequence[Named]) -> None:
        """They left for their subscriber; told again if they did not arrive and leave once more."""

    def expired(self, notifications: Sequence[Named]) -> None:
        """Nobody fetched them in time."""

    def dropped(self, notifications: Sequence[Named]) -> None:
        """Their queue or its notifier was deleted."""


class NoSmpEvents:
    """Nobody is told."""

    def enqueued(self, notification: Named) -> None:
        pass

    def sent(self, notifications: Sequence[Named]) -> None:
        pass

    def expired(self, notifications: Sequence[Named]) -> None:
        pass

    def dropped(self, notifications: Sequence[Named]) -> None:
        pass
