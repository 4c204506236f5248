"""How much and how long one HTTP/2 connection takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUR_WINDOW: Final = 1_048_575
STREAMS_UNTIL_TOLD: Final = 100
MOST_STREAMS: Final = 1000
LAST_STREAM_ID: Final = (1 << 31) - 1001
MAX_IDLE_FRAMES: Final = 10_000
"""Frames within a second that end no stream; each stream that ends makes up for some."""
IDLE_FRAMES_PER_ANSWER: Final = 8


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Seconds."""

    connect: float = 25.0
    request: float = 25.0
    ping_after: float = 60.0
    """Of silence."""
    ping_after_when_busy: float = 5.0
    """The same while answers are awaited."""
    ping_answer: float = 10.0
    watch: float = 1.0
