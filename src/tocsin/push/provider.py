"""The interface of push providers: requests and outcomes.

A provider takes a push if it has room, and answers once with a value: no failure between router and device raises. The
delivery decides whether and when to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tocsin.protocol.ntf.pushes import Push, push_json
from tocsin.protocol.ntf.statuses import InvalidReason


class Urgency(Enum):
    __hash__ = object.__hash__  # the default hashes the name for each push, in Python

    ALERT = "alert"
    """For messages, which the user sees."""
    BACKGROUND = "background"
    """For verification and periodic checks, which wake the app when it suits the device."""


class PushRequest(NamedTuple):
    """A push to a device. A tuple, because every push creates one."""

    device_token: bytes
    contents: Push | bytes
    """The contents for the device, in a form of each provider. Bytes are a whole payload, which only Apple gets."""
    urgency: Urgency
    push_id: str
    """A UUID that is the same for repeats of the push, so that they can be recognised."""
    expires_at: int
    """Unix time until which the provider keeps the push for a device that is offline."""

    def __repr__(self) -> str:
        """Omit the device token and the contents."""
        return f"PushRequest({self.urgency}, {self.push_id})"

    @property
    def payload(self) -> bytes:
        """Return the contents as JSON for Apple."""
        contents = self.contents
        return contents if isinstance(contents, bytes) else push_json(contents)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider accepted the push."""


ACCEPTED: Final = Accepted()


@dataclass(frozen=True, slots=True)
class TokenInvalid:
    """The device token will never work again."""

    reason: InvalidReason
    since: float | None = None
    """Unix time at which the provider learned it, if known. Later registrations are not concerned."""

    def concerns(self, registered_at: float) -> bool:
        """Whether the refusal concerns a registration of that time, not an earlier one of the same device token."""
        return self.since is None or self.since >= registered_at


class RetryScope(Enum):
    """The pushes that should wait."""

    TOKEN = "token"  # noqa: S105
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The push failed for a passing reason: no connection, overload, timeout."""

    reason: str
    """A word for metrics and logs: `connection`, `timeout`, `503`, `TooManyRequests`, …"""
    scope: RetryScope = RetryScope.PROVIDER
    after: float | None = None
    """The delay in seconds that the provider asked for, if any."""


@dataclass(frozen=True, slots=True)
class PushRefused:
    """The provider will never accept this push."""

    reason: str


PushOutcome: TypeAlias = Accepted | TokenInvalid | RetryLater | PushRefused


class Provider(Protocol):
    """One environment of a provider, for example Apple's production service."""

    @property
    def room(self) -> int:
        """The number of pushes that can be submitted now without waiting for a stream."""

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        """Send a push. `answered` is called once, within a time limit, and not before this returns."""

    async def wait_for_room(self) -> None:
        """Return when `room` is not 0. A provider that is not connected has room at once."""

    async def close(self) -> None:
        """Wait for answers in flight for at most a few seconds, and close."""


@dataclass(slots=True)
class CredentialCounts:
    """How often a provider got new credentials, and how often not."""

    renewed: int = 0
    failed: int = 0


@runtime_checkable
class RenewsCredentials(Protocol):
    """A provider whose credentials come from another service and expire."""

    @property
    def credentials(self) -> CredentialCounts: ...


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
    """Return the seconds of a Retry-After header.

    Dates count as none, and so does 0, which would make us retry at once.
    """
    if value is None or not value.isdigit() or len(value) > 9:
        return None
    return min(float(value), MAX_RETRY_AFTER_SECONDS) or None
