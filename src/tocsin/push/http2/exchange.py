"""One request and its answer: what a stream of HTTP/2 carries, and how it can end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

MAX_BODY_BYTES: Final = 16_384
"""More of an answer is not read."""
_NO_HEADERS: Final[Mapping[bytes, bytes]] = {}


class Http2Answer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Unprocessed(NamedTuple):
    """The server has not begun with the request: it can be sent again."""

    reason: str


class Failure(Enum):
    """How far what went wrong reaches."""

    TIMEOUT = "timeout"
    RESET = "reset"
    """This stream."""
    CONNECTION = "connection"


class Unanswered(NamedTuple):
    """Nobody knows whether the server has processed the request, unless its answer had begun."""

    failure: Failure
    reason: str
    status: int = 0
    """Of an answer whose end never came."""


Result: TypeAlias = Http2Answer | Unprocessed | Unanswered


class MalformedAnswer(Exception):
    """Concerns its stream only (RFC 9113, 8.1.1)."""


class Exchange:
    __slots__ = ("answered", "body", "deadline", "headers", "status", "unsent", "window")

    def __init__(self, answered: Callable[[Result], None], deadline: float, window: int) -> None:
        self.answered = answered
        """Called once, in another turn of the loop."""
        self.deadline = deadline
        self.window = window
        """Bytes of the body that the peer takes for this stream."""
        self.unsent = b""
        self.status = 0
        self.headers: Mapping[bytes, bytes] = _NO_HEADERS
        self.body = b""

    def read_headers(self, headers: Mapping[bytes, bytes], *, last: bool) -> None:
        """Of the answer, of an answer before it (1xx), or after the body. Raises MalformedAnswer."""
        if self.status:
            return  # after the body: nothing in them is of use
        status = headers.get(b":status", b"")
        if len(status) != 3 or not status.isdigit() or status < b"100":
            raise MalformedAnswer("an answer without a status")
        if status.startswith(b"1"):
            if last:
                raise MalformedAnswer("an answer that ends before it begins")
            return
        self.status = int(status)
        self.headers = headers

    def read_body(self, part: bytes) -> bool:
        """Returns whether it is longer than anybody wants to know. Raises MalformedAnswer."""
        if not self.status:
            raise MalformedAnswer("a body before its status")
        self.body += part
        if len(self.body) <= MAX_BODY_BYTES:
            return False
        self.body = self.body[:MAX_BODY_BYTES]
        return True


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
