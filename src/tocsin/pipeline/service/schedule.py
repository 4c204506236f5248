"""Decides which part of the service is due. Pure: callers pass the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Schedule:
    """Parts of the service, and the seconds between two runs of each. A part that failed runs again when it is due."""

    every: Mapping[str, float]
    _next: dict[str, float] = field(default_factory=dict)

    def due(self, now: float) -> list[str]:
        """In the order in which they are declared. A part that is late runs once, however late."""
        return [name for name in self.every if self._next.get(name, now) <= now]

    def done(self, name: str, now: float) -> None:
        """Call it after a run, with the time at its end: a run longer than its interval must not fill all time."""
        self._next[name] = now + self.every[name]
