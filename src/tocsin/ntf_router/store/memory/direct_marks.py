"""What is known of few queues of direct notifications: ended by their owner, or gone, as their SMP router says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final


class DirectMarks:
    def __init__(self) -> None:
        self.gone: Final[dict[bytes, int]] = {}
        """Notifier id to when the SMP router said so."""
        self._ended: Final[dict[bytes, int]] = {}
        """Notifier id to when it may be forgotten."""

    def end(self, notifier_id: bytes, until: int) -> None:
        self._ended[notifier_id] = max(until, self._ended.get(notifier_id, 0))

    def is_ended(self, notifier_id: bytes, now: int) -> bool:
        return self._ended.get(notifier_id, 0) > now

    def ended(self) -> Iterator[tuple[bytes, int]]:
        return iter(self._ended.items())

    def forget(self, now: int) -> None:
        """No packet can be opened any more that would bring these back."""
        for notifier_id in [each for each, until in self._ended.items() if until <= now]:
            del self._ended[notifier_id]
