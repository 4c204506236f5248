"""The subject of a question: a pseudonym of one period, given or derived from ids."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.events.pseudonyms import PseudonymKeys, PseudonymPeriod

PSEUDONYM: Final = re.compile("[A-Za-z0-9_-]{22}")
EPOCH: Final = date(1970, 1, 1)
MICROSECONDS: Final = 1_000_000
FOREVER: Final = 36_500
"""Retention in days: looking up a key must not erase others."""


class QuestionSubject(StrEnum):
    """The column of `events` that has the pseudonym."""

    NOTIFICATION = "notification"
    QUEUE = "queue"
    TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Question:
    subject: QuestionSubject
    pseudonym: str
    day: date | None
    """Day of the period. None means any: a pseudonym belongs to one period only."""
    period: str | None = None
    """Known if the pseudonym was derived from ids."""
    since: int | None = None
    until: int | None = None
    """Only notifications that began between these times, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """The options of the command."""

    notification: str | None = None
    queue: str | None = None
    token: str | None = None
    notifier_id: str | None = None
    nonce: str | None = None
    token_id: str | None = None
    keys: Path | None = None
    days: tuple[date, ...] = ()
    hours: float | None = None


def question(asked: ExplainOptions, *, now: datetime) -> Question:
    """Raises ConfigError that says how to ask instead."""
    subject, given = _subject(asked)
    if len(set(asked.days)) > 1:
        named = " and ".join(sorted(str(each) for each in set(asked.days)))
        raise ConfigError(
            f"pseudonyms of {named} cannot be compared, since each day has its own key: ask once for each --day"
        )
    day = asked.days[0] if asked.days else None
    if given is not None:
        if not PSEUDONYM.fullmatch(given):
            raise ConfigError(
                f"--{subject} is not a pseudonym (22 base64url characters, as in events): to ask by ids, use --keys"
            )
        return Question(subject, given, day, None, *_window(day, asked.hours, now))
    day = day or now.astimezone(UTC).date()
    period = _period(asked, day)
    return Question(subject, _derived(asked, period), day, period.name, *_window(day, asked.hours, now))


def _subject(asked: ExplainOptions) -> tuple[QuestionSubject, str | None]:
    """The subject, and its pseudonym if that is given directly."""
    given = [(each, getattr(asked, each)) for each in QuestionSubject if getattr(asked, each) is not None]
    derived = []
    if asked.notifier_id is not None:
        derived.append(QuestionSubject.NOTIFICATION if asked.nonce is not None else QuestionSubject.QUEUE)
    if asked.token_id is not None:
        derived.append(QuestionSubject.TOKEN)
    if len(given) + len(derived) != 1:
        raise ConfigError(
            "ask about exactly one thing: --notification, --queue or --token with a pseudonym, or --notifier-id (with "
            "--nonce for one notification) or --token-id with --keys"
        )
    if asked.nonce is not None and asked.notifier_id is None:
        raise ConfigError("--nonce needs --notifier-id to name a notification")
    return given[0] if given else (derived[0], None)


def _period(asked: ExplainOptions, day: date) -> PseudonymPeriod:
    if asked.keys is None:
        raise ConfigError("ids are looked up by pseudonym: name the folder of the pseudonym keys with --keys")
    if not asked.keys.is_dir():
        raise ConfigError(
            f"no folder of pseudonym keys at {asked.keys}: it is beside a router's event_log and ends in -keys"
        )
    try:
        period = PseudonymKeys(asked.keys, FOREVER, lambda: 0.0).of_day((day - EPOCH).days)
    except OSError as error:
        raise ConfigError(f"cannot read the pseudonym keys in {asked.keys}: {error.strerror}") from error
    if period is None:
        raise ConfigError(
            f"no pseudonym key of {day} in {asked.keys}: it was erased after its retention, nothing was delivered "
            "that day, or the routers keep their keys elsewhere. Try another --day or --keys"
        )
    return period


def _derived(asked: ExplainOptions, period: PseudonymPeriod) -> str:
    if asked.token_id is not None:
        return period.token(_bytes("--token-id", asked.token_id))
    assert asked.notifier_id is not None
    notifier_id = _bytes("--notifier-id", asked.notifier_id)
    if asked.nonce is None:
        return period.queue(notifier_id)
    return period.notification(notifier_id, _bytes("--nonce", asked.nonce))


def _bytes(option: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise ConfigError(f"{option} is not base64url: copy the id from the router or the agent")
    return found


def _window(day: date | None, hours: float | None, now: datetime) -> tuple[int | None, int | None]:
    """The last hours of the day, or until now. They must be within one period."""
    if hours is None:
        return None, None
    if hours <= 0:
        raise ConfigError(f"--hours {hours:g}: must be more than 0")
    day = day or now.astimezone(UTC).date()
    starts = datetime(day.year, day.month, day.day, tzinfo=UTC)
    until = min(now, starts + timedelta(days=1))
    since = until - timedelta(hours=hours)
    if since < starts:
        raise ConfigError(
            f"{hours:g} hours before {until:%Y-%m-%d %H:%M} UTC reach into another day, which has other pseudonyms: "
            f"ask for at most {max((until - starts).total_seconds() / 3600, 0):.1f} hours, or for another --day"
        )
    return _microseconds(since), _microseconds(until)


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp() * MICROSECONDS)
