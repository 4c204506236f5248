"""What a doctor says: one thing that notifications need, whether it is in order, and what to do if not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Subject(StrEnum):
    CONNECTION = "connection"
    TOKEN = "token"  # noqa: S105 - a word, not a secret
    NTF_ROUTER = "NTF router"
    TOKEN_AT_ROUTER = "token at the NTF router"  # noqa: S105 - as above
    PROVIDER = "push provider"
    SMP_ROUTER = "SMP router"
    CREDENTIALS = "notifier credentials"
    SUBSCRIPTION = "subscription"


class Repair(StrEnum):
    REGISTER_TOKEN = "register the token again"  # noqa: S105 - as above
    RECREATE_SUBSCRIPTION = "make credentials and subscription anew"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: Subject
    verdict: Verdict
    text: str
    """A sentence."""
    next_step: str = ""
    """What a person can do about it."""
    repair: Repair | None = None
    """What the agent can do about it."""


def ok(subject: Subject, text: str) -> Finding:
    return Finding(subject, Verdict.OK, text)


def wrong(subject: Subject, text: str, next_step: str, *, repair: Repair | None = None) -> Finding:
    return Finding(subject, Verdict.WRONG, text, next_step, repair)


def unknown(subject: Subject, text: str, next_step: str = "") -> Finding:
    return Finding(subject, Verdict.UNKNOWN, text, next_step)
