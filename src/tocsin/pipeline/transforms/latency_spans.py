"""Spans of a notification's path, from one stage to another."""

from __future__ import annotations

from typing import Final

from tocsin.events.delivery_events import Stage

SPANS: Final[dict[str, tuple[Stage, Stage]]] = {
    "SMP router": (Stage.ENQUEUED, Stage.SENT),
    "between routers": (Stage.SENT, Stage.RECEIVED),
    "NTF router": (Stage.RECEIVED, Stage.ATTEMPTED),
    "provider": (Stage.ATTEMPTED, Stage.ACCEPTED),
    "NTF router and provider": (Stage.RECEIVED, Stage.ACCEPTED),
    "SMP router to provider": (Stage.ENQUEUED, Stage.ACCEPTED),
    "provider to device": (Stage.ACCEPTED, Stage.WOKEN),
    "on the device": (Stage.WOKEN, Stage.FETCHED),
}
"""By the name that reports show and tables store as `leg`. Spans between two machines include their clock skew."""
