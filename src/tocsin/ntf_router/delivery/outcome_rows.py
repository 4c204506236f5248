"""Outcome rows: the answers of the `deliver` job to the rows that a router handed over. They hold no secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    RetryLater,
    RetryScope,
    TokenInvalid,
)

TOO_LARGE: Final = "too_large"
ACCEPTED_WORD: Final = "accepted"
RETRY_WORD: Final = "retry"
SUPERSEDED_WORD: Final = "superseded"
"""The job has a newer notification of the queue."""
BEGUN_WORD: Final = "begun"
"""The answer to a row that begins an epoch."""
NOT_SERVED: Final = RetryLater("not_served", RetryScope.PROVIDER)
"""The job has no settings of the provider."""
TOO_SLOW: Final = RetryLater("timeout", RetryScope.TOKEN)
"""The provider did not answer within the patience of the batch."""
JOB_FAILURES: Final = (NOT_SERVED, TOO_SLOW)
"""The router might do better."""


class OutcomeRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The job's answer to one push, and the rows it covers."""

    epoch: str
    ids: tuple[int, ...]
    outcome: str
    reason: str = ""
    since: float | None = None
    scope: str = ""
    after: float | None = None
    attempt: int = 0
    """Failed attempts before this one."""
    due_in: float | None = None
    """Set if the job itself repeats the push, after so many seconds. Without it, a `retry` is left to the router."""
    pushed: bool = True
    """False if there was no attempt, because the provider pauses or the row cannot be read."""

    @property
    def push_outcome(self) -> PushOutcome:
        """Raises DecodeError."""
        try:
            match self.outcome:
                case "accepted":
                    return Accepted()
                case "invalid":
                    return TokenInvalid(InvalidReason(self.reason), self.since)
                case "retry":
                    return RetryLater(self.reason, RetryScope(self.scope), self.after)
                case "refused":
                    return PushRefused(self.reason)
        except ValueError as error:
            raise DecodeError("the outcome was written by another version of Tocsin") from error
        raise DecodeError(
            f"unknown outcome {self.outcome[:20]!r}: it was written by another version of Tocsin"
        )


def outcome_row(
    epoch: str,
    ids: Iterable[int],
    outcome: PushOutcome,
    attempt: int,
    *,
    due_in: float | None = None,
    pushed: bool = True,
) -> OutcomeRow:
    word, reason = outcome_words(outcome)
    retry = outcome if isinstance(outcome, RetryLater) else None
    return OutcomeRow(
        epoch,
        tuple(ids),
        word,
        reason,
        since=outcome.since if isinstance(outcome, TokenInvalid) else None,
        scope=retry.scope.value if retry else "",
        after=retry.after if retry else None,
        attempt=attempt,
        due_in=due_in,
        pushed=pushed,
    )


def outcome_words(outcome: PushOutcome) -> tuple[str, str]:
    """Return the outcome and its reason as words."""
    match outcome:
        case Accepted():
            return ACCEPTED_WORD, ""
        case TokenInvalid(reason):
            return "invalid", reason.value
        case RetryLater(reason):
            return RETRY_WORD, reason
        case PushRefused(reason):
            return "refused", reason


def encode_outcome_rows(answers: Iterable[OutcomeRow]) -> bytes:
    return _JSON.encode_lines(answers)


def read_outcome_row(line: bytes) -> OutcomeRow:
    """Raises DecodeError."""
    try:
        return _ANSWERS.decode(line)
    except msgspec.MsgspecError as error:
        raise DecodeError("not an outcome row") from error


_JSON: Final = msgspec.json.Encoder()
_ANSWERS: Final = msgspec.json.Decoder(OutcomeRow)
