"""Findings: one thing that notifications need, whether it is in order, and what to do if it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingVerdict(StrEnum):
    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class FindingSubject(StrEnum):
    CONNECTION = "connection"
    TOKEN = "token"  # noqa: S105 - a word, not a secret
    NTF_ROUTER = "NTF router"
    TOKEN_AT_ROUTER = "token at the NTF router"  # noqa: S105 - as above
    PROVIDER = "push provider"
    SMP_ROUTER = "SMP router"
    CREDENTIALS = "notifier credentials"
    SUBSCRIPTION = "subscription"

    def ok(self, text: str) -> NotificationFinding:
        return NotificationFinding(self, FindingVerdict.OK, text)

    def wrong(self, text: str, next_step: str, *, repair: Repair | None = None) -> NotificationFinding:
        return NotificationFinding(self, FindingVerdict.WRONG, text, next_step, repair)

    def unknown(self, text: str, next_step: str = "") -> NotificationFinding:
        return NotificationFinding(self, FindingVerdict.UNKNOWN, text, next_step)


class Repair(StrEnum):
    REGISTER_TOKEN = "register the token again"  # noqa: S105 - as above
    RECREATE_SUBSCRIPTION = "create new credentials and a new subscription"


@dataclass(frozen=True, slots=True)
class NotificationFinding:
    subject: FindingSubject
    verdict: FindingVerdict
    text: str
    """A sentence."""
    next_step: str = ""
    """A step for a person."""
    repair: Repair | None = None
    """A repair by the agent itself."""
