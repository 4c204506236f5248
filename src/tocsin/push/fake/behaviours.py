"""What the fake provider does with a push, and the script that says when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Respond:
    """An answer. With 200 the push counts as delivered, unless it is to get lost on its way to the device."""

    status: int = 200
    reason: str | None = None
    timestamp: int | None = None
    """Milliseconds since 1970, as Apple sends them with 410."""
    retry_after: str | None = None
    delivered: bool = True


@dataclass(frozen=True, slots=True)
class Delay:
    seconds: float
    then: Respond = Respond()


@dataclass(frozen=True, slots=True)
class Hold:
    """No answer until `FakeApns.release`: for ever if nobody calls it."""


@dataclass(frozen=True, slots=True)
class ResetStream:
    code: int = 2


@dataclass(frozen=True, slots=True)
class GoAway:
    """The streams up to the last one are processed, this one only if it is among them; others are ignored."""

    last_stream_id: int | None = None
    """The stream before this one if not given."""
    code: int = 0
    close: bool = False
    """At once, without finishing anything."""


@dataclass(frozen=True, slots=True)
class CloseMidAnswer:
    """The status is sent, the end of the answer is not."""

    status: int = 200


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """As a broken network does it: no GOAWAY, no end of TLS."""


@dataclass(frozen=True, slots=True)
class SendRaw:
    """These bytes instead of an answer: garbage, or frames that no sane server sends."""

    data: bytes


Behaviour: TypeAlias = (
    Respond | Delay | Hold | ResetStream | GoAway | CloseMidAnswer | CloseConnection | SendRaw
)

ACCEPT: Final = Respond()
LOSE: Final = Respond(delivered=False)


class Script:
    """Behaviours for one device or for all: some for the next pushes, one from then on."""

    def __init__(self) -> None:
        self._next: dict[bytes | None, deque[Behaviour]] = {}
        self._lasting: dict[bytes | None, Behaviour] = {}

    def add(self, behaviour: Behaviour, device_token: bytes | None, times: int | None) -> None:
        """Without `times` until changed."""
        if times is None:
            self._lasting[device_token] = behaviour
        else:
            self._next.setdefault(device_token, deque()).extend([behaviour] * times)

    def clear(self, device_token: bytes | None = None) -> None:
        """Back to accepting: one device's pushes, or everything."""
        for each in [device_token] if device_token is not None else [*self._next, *self._lasting]:
            self._next.pop(each, None)
            self._lasting.pop(each, None)

    def take(self, device_token: bytes) -> Behaviour:
        """For the push at hand: what is meant for its device comes before what is meant for all."""
        for key in (device_token, None):
            if waiting := self._next.get(key):
                return waiting.popleft()
            if key in self._lasting:
                return self._lasting[key]
        return ACCEPT
