"""What a push provider is asked, and what it may answer.

A provider takes a push if it has room and answers once, with a value: nothing that goes wrong between router and
device raises. Whether and when to try again is decided by the delivery, not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from tocsin.protocol.ntf.statuses import InvalidReason


class Urgency(Enum):
    ALERT = "alert"
    """Shown to the user: messages."""
    BACKGROUND = "background"
    """Wakes the app when it suits the device: verification and periodic checks."""


class PushRequest(NamedTuple):
    """A tuple, since every push makes one."""

    device_token: bytes
    payload: bytes
    urgency: Urgency
    push_id: str
    """A UUID that is the same when the same push is sent again, so that a repeat can be recognised."""
    expires_at: int
    """Seconds since 1970; the provider need not keep it longer for a device that is away."""

    def __repr__(self) -> str:
        """Without the device token and what is pushed to it."""
        return f"PushRequest({self.urgency}, {self.push_id})"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider has it."""


@dataclass(frozen=True, slots=True)
class TokenInvalid:
    """The device token will never work again."""

    reason: InvalidReason
    since: float | None = None
    """When the provider learnt it, seconds since 1970, if it says so: a later registration is not concerned."""

    def concerns(self, registered_at: float) -> bool:
        """Whether it is about a device token registered then, and not about an earlier life of it."""
        return self.since is None or self.since >= registered_at


class RetryScope(Enum):
    """Who should wait."""

    TOKEN = "token"  # noqa: S105
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Not now: no connection, overload, time-out."""

    reason: str
    """A word for metrics and logs: `connection`, `timeout`, `503`, `TooManyRequests`, …"""
    scope: RetryScope = RetryScope.PROVIDER
    after: float | None = None
    """Seconds, if the provider named them."""


@dataclass(frozen=True, slots=True)
class PushRefused:
    """This push will not be accepted, however often it is sent."""

    reason: str


PushOutcome: TypeAlias = Accepted | TokenInvalid | RetryLater | PushRefused


class Provider(Protocol):
    """One provider environment, e.g. Apple's production one."""

    @property
    def room(self) -> int:
        """How many pushes `send` takes now without waiting in line for a stream."""

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        """`answered` is called once, within a time limit, and not before this returns."""

    async def wait_for_room(self) -> None:
        """Returns when `room` is not 0, which it is at once for a provider that is not connected."""

    async def close(self) -> None:
        """Waits for answers that are under way, a few seconds at most."""


class NullProvider:
    room = 1000

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(answered, Accepted())

    async def wait_for_room(self) -> None:
        pass

    async def close(self) -> None:
        pass


MAX_RETRY_AFTER_SECONDS: Final = 3600.0


def retry_after_seconds(value: bytes | None) -> float | None:
    """A date is not understood and counts as none, and so does 0: it would have us try for ever at once."""
    if value is None or not value.isdigit() or len(value) > 9:
        return None
    return min(float(value), MAX_RETRY_AFTER_SECONDS) or None
