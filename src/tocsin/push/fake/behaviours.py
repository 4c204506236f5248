"""Behaviours of the fake provider for a push, and the script that selects them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer. With status 200 the push counts as delivered, unless it is to be lost on its way to the device."""

    status: int = 200
    reason: str | None = None
    timestamp: int | None = None
    """Unix time in milliseconds, as Apple sends it with 410."""
    retry_after: str | None = None
    delivered: bool = True
    body: bytes | None = None
    """The body, in place of one that is made of reason and timestamp."""


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float
    then: Respond = Respond()


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the answer until `FakeApns.release` is called."""


@dataclass(frozen=True, slots=True)
class ResetStream:
    code: int = 2


@dataclass(frozen=True, slots=True)
class GoAway:
    """Send GOAWAY. Streams up to the last one are processed, later ones are ignored."""

    last_stream_id: int | None = None
    """The last stream to process; by default the one before this one."""
    code: int = 0
    close: bool = False
    """Close the connection at once, without finishing anything."""


@dataclass(frozen=True, slots=True)
class CloseMidAnswer:
    """Close the connection after the status, before the end of the answer. With status 200 the push is delivered."""

    status: int = 200


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection as a broken network does: without GOAWAY and without the end of TLS."""


@dataclass(frozen=True, slots=True)
class SendRaw:
    """Send bytes instead of an answer: garbage, or invalid frames."""

    data: bytes


Behaviour: TypeAlias = (
    Respond | Delay | Hold | ResetStream | GoAway | CloseMidAnswer | CloseConnection | SendRaw
)

ACCEPT: Final = Respond()
LOSE: Final = Respond(delivered=False)


class Script:
    """Behaviours for one device or for all: some for the next pushes, and one from then on."""

    def __init__(self) -> None:
        self._next: dict[bytes | None, deque[Behaviour]] = {}
        self._lasting: dict[bytes | None, Behaviour] = {}

    def add(self, behaviour: Behaviour, device_token: bytes | None, times: int | None) -> None:
        """Set a behaviour for the next `times` pushes, or until it is changed."""
        if times is None:
            self._lasting[device_token] = behaviour
        else:
            self._next.setdefault(device_token, deque()).extend([behaviour] * times)

    def clear(self, device_token: bytes | None = None) -> None:
        """Accept one device's pushes again, or all pushes."""
        for each in [device_token] if device_token is not None else [*self._next, *self._lasting]:
            self._next.pop(each, None)
            self._lasting.pop(each, None)

    def take(self, device_token: bytes) -> Behaviour:
        """Return the behaviour for the next push to a device. Its own behaviours come before those for all."""
        for key in (device_token, None):
            if waiting := self._next.get(key):
                return waiting.popleft()
            if key in self._lasting:
                return self._lasting[key]
        return ACCEPT
