from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.unit.pipeline.sample_events import pseudonym
from tocsin.errors import ConfigError
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.pipeline.explain.question import ExplainOptions, QuestionSubject, question

NOW = datetime(2026, 11, 15, 15, 0, tzinfo=UTC)
TODAY = NOW.date()
NOTIFIER, NONCE, TOKEN = bytes(range(24)), bytes(range(24, 48)), bytes(24)


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


@pytest.fixture
def keys(tmp_path: Path) -> PseudonymKeys:
    made = PseudonymKeys(tmp_path / "keys", 30, NOW.timestamp)
    made.current()
    return made


@pytest.mark.parametrize("subject", list(QuestionSubject))
def test_a_pseudonym_is_asked_for_as_it_is(subject: QuestionSubject) -> None:
    found = question(ExplainOptions(**{str(subject): pseudonym("x")}), now=NOW)  # type: ignore[arg-type]
    assert (found.subject, found.pseudonym, found.day, found.period) == (subject, pseudonym("x"), None, None)


def test_ids_become_the_pseudonyms_of_the_day(keys: PseudonymKeys, tmp_path: Path) -> None:
    period = keys.current()
    asked = ExplainOptions(notifier_id=text(NOTIFIER), keys=tmp_path / "keys")
    one = question(replace(asked, nonce=text(NONCE)), now=NOW)
    assert (one.subject, one.pseudonym) == (
        QuestionSubject.NOTIFICATION,
        period.notification(NOTIFIER, NONCE),
    )
    queue = question(replace(asked, notifier_id=text(NOTIFIER).rstrip("=")), now=NOW)
    assert (queue.subject, queue.pseudonym, queue.period, queue.day) == (
        QuestionSubject.QUEUE,
        period.queue(NOTIFIER),
        period.name,
        TODAY,
    )
    token = question(ExplainOptions(token_id=text(TOKEN), keys=tmp_path / "keys"), now=NOW)
    assert (token.subject, token.pseudonym) == (QuestionSubject.TOKEN, period.token(TOKEN))


def test_looking_for_a_key_neither_makes_nor_erases_any(keys: PseudonymKeys, tmp_path: Path) -> None:
    before = sorted(path.name for path in (tmp_path / "keys").iterdir())
    with pytest.raises(ConfigError, match="no pseudonym key of 2026-11-14"):
        question(
            ExplainOptions(token_id=text(TOKEN), keys=tmp_path / "keys", days=(date(2026, 11, 14),)), now=NOW
        )
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == before


REFUSED = [
    (ExplainOptions(), "ask about exactly one thing"),
    (ExplainOptions(notification=pseudonym("x"), queue=pseudonym("y")), "ask about exactly one thing"),
    (ExplainOptions(queue=pseudonym("y"), token_id="AAAA"), "ask about exactly one thing"),
    (
        ExplainOptions(notification=pseudonym("x"), nonce="AAAA"),
        "--nonce needs --notifier-id to name a notification",
    ),
    (ExplainOptions(queue="too short"), "--queue is not a pseudonym"),
    (ExplainOptions(token_id="AAAA"), "with --keys"),
    (ExplainOptions(token_id="AAAA", keys=Path("nowhere-at-all")), "no folder of pseudonym keys"),
    (
        ExplainOptions(queue=pseudonym("x"), days=(date(2026, 11, 14), TODAY)),
        "2026-11-14 and 2026-11-15 cannot be compared",
    ),
    (ExplainOptions(queue=pseudonym("x"), hours=0), "--hours 0"),
    (
        ExplainOptions(queue=pseudonym("x"), hours=16),
        "reach into another day, which has other pseudonyms: ask for at most 15.0",
    ),
    (ExplainOptions(queue=pseudonym("x"), hours=25, days=(date(2026, 11, 14),)), "at most 24.0 hours"),
]


@pytest.mark.parametrize(("asked", "says"), REFUSED)
def test_what_cannot_be_asked_is_refused_with_what_can(asked: ExplainOptions, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        question(asked, now=NOW)


@pytest.mark.parametrize("wrong", ["", "not base64!", "AAAAA"])
def test_ids_that_are_not_base64url_are_named(keys: PseudonymKeys, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="--token-id is not base64url"):
        question(ExplainOptions(token_id=wrong, keys=tmp_path / "keys"), now=NOW)


def test_hours_end_now_or_with_the_day() -> None:
    found = question(ExplainOptions(queue=pseudonym("x"), hours=3), now=NOW)
    assert (found.since, found.until) == (microseconds(2026, 11, 15, 12), microseconds(2026, 11, 15, 15))
    past = question(ExplainOptions(queue=pseudonym("x"), hours=3, days=(date(2026, 11, 14),)), now=NOW)
    assert (past.since, past.until) == (microseconds(2026, 11, 14, 21), microseconds(2026, 11, 15, 0))


def microseconds(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]
