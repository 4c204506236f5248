"""Token and subscription statuses and their text (ntf.md 2.5, 2.6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION


class InvalidReason(StrEnum):
    BAD = "BAD"
    TOPIC = "TOPIC"
    EXPIRED = "EXPIRED"
    UNREGISTERED = "UNREGISTERED"


class TokenState(StrEnum):
    NEW = "NEW"
    REGISTERED = "REGISTERED"
    CONFIRMED = "CONFIRMED"
    ACTIVE = "ACTIVE"
    INVALID = "INVALID"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class TokenStatus:
    """A state, and for INVALID perhaps the provider's reason: `INVALID,UNREGISTERED`."""

    state: TokenState
    reason: InvalidReason | None = None

    def text(self, version: int) -> str:
        """Versions before 3 do not know reasons."""
        if self.reason is None or version < INVALID_REASON_VERSION:
            return self.state.value
        return f"{self.state.value},{self.reason.value}"

    @classmethod
    def parse(cls, text: str) -> TokenStatus:
        state, comma, reason = text.partition(",")
        try:
            status = cls(TokenState(state), InvalidReason(reason) if comma else None)
        except ValueError as error:
            raise DecodeError(f"unknown token status {text[:32]!r}") from error
        if comma and status.state is not TokenState.INVALID:
            raise DecodeError(f"token status {state} with a reason")
        return status


class SubscriptionState(StrEnum):
    NEW = "NEW"
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    END = "END"
    DELETED = "DELETED"
    AUTH = "AUTH"
    SERVICE = "SERVICE"


@dataclass(frozen=True, slots=True)
class SubscriptionFailed:
    """`ERR text`: any other error of the SMP router; the text is free."""

    text: str


SubscriptionStatus: TypeAlias = SubscriptionState | SubscriptionFailed


def subscription_status_text(status: SubscriptionStatus) -> str:
    return f"ERR {status.text}" if isinstance(status, SubscriptionFailed) else status.value


def parse_subscription_status(text: str) -> SubscriptionStatus:
    word, space, rest = text.partition(" ")
    if word == "ERR" and space:
        return SubscriptionFailed(rest)
    try:
        return SubscriptionState(text)
    except ValueError as error:
        raise DecodeError(f"unknown subscription status {text[:32]!r}") from error
