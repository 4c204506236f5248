"""One request and its answer on an HTTP/2 stream, and the possible ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tocsin.push.provider import retry_after_seconds

MAX_BODY_BYTES: Final = 16_384
"""The part of an answer's body that is read."""
_NO_HEADERS: Final[Mapping[bytes, bytes]] = {}
_STATUSES: Final = {b"%d" % status: status for status in range(100, 1000)}


class Http2Answer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Return the seconds that the server asks to wait, if it does."""
        return retry_after_seconds(self.headers.get(b"retry-after"))

    def json_object(self) -> Mapping[str, object]:
        """Return the body if it is a JSON object, or else an empty one."""
        try:
            said = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


class Unprocessed(NamedTuple):
    """The server has not begun to process the request, so it can be sent again."""

    reason: str


class Failure(Enum):
    """The scope of a failure."""

    TIMEOUT = "timeout"
    RESET = "reset"
    """Only this stream."""
    CONNECTION = "connection"


class Unanswered(NamedTuple):
    """It is unknown whether the server processed the request, unless its answer had begun."""

    failure: Failure
    reason: str
    status: int = 0
    """The status of an answer without its end."""


Result: TypeAlias = Http2Answer | Unprocessed | Unanswered


class MalformedAnswer(Exception):
    """A malformed answer, which concerns its stream only (RFC 9113, 8.1.1)."""


class Exchange:
    __slots__ = ("answered", "body", "deadline", "headers", "status", "unsent", "window")

    def __init__(self, answered: Callable[[Result], None], deadline: float, window: int) -> None:
        self.answered = answered
        """Called once, in another iteration of the event loop."""
        self.deadline = deadline
        self.window = window
        """The peer's window for this stream, in bytes."""
        self.unsent = b""
        self.status = 0
        self.headers: Mapping[bytes, bytes] = _NO_HEADERS
        self.body = b""

    def read_headers(self, headers: Mapping[bytes, bytes], *, last: bool) -> None:
        """Handle headers of the answer, of an interim answer (1xx), or trailers. Raises MalformedAnswer."""
        if self.status:
            return  # trailers, which carry nothing that we need
        status = _STATUSES.get(headers.get(b":status", b""))
        if status is None:
            raise MalformedAnswer("an answer without a status")
        if status < 200:
            if last:
                raise MalformedAnswer("an interim answer that ends the stream")
            return
        self.status = status
        self.headers = headers

    def read_body(self, part: bytes) -> bool:
        """Add to the body. Returns whether it is longer than we read. Raises MalformedAnswer."""
        if not self.status:
            raise MalformedAnswer("a body before its status")
        self.body += part
        if len(self.body) <= MAX_BODY_BYTES:
            return False
        self.body = self.body[:MAX_BODY_BYTES]
        return True


OUR_WINDOW: Final = 1_048_575
STREAMS_BEFORE_SETTINGS: Final = 100
MOST_STREAMS: Final = 1000
LAST_STREAM_ID: Final = (1 << 31) - 1001
MAX_IDLE_FRAMES: Final = 10_000
"""Frames within a second that end no stream. Each stream that ends allows some more."""
IDLE_FRAMES_PER_ANSWER: Final = 8


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Time limits in seconds."""

    connect: float = 25.0
    request: float = 25.0
    ping_after: float = 60.0
    """Seconds of silence before a PING."""
    ping_after_when_busy: float = 5.0
    """Seconds of silence before a PING while answers are awaited."""
    ping_answer: float = 10.0
    watch: float = 1.0
