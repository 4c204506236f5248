"""Lines from ready-made pieces are those that the schema's own encoder makes."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doubles.delivery_lines import encode_events
from tocsin.events import event_encoder
from tocsin.events.delivery_events import SCHEMA_VERSION, DeliveryEvent, Stage, decode_event
from tocsin.events.event_encoder import EventEncoder, EventSubject
from tocsin.events.pseudonyms import PERIOD_SECONDS, PseudonymKeys

DAY = 20_000
INSTANCE = 'router "1"'
texts = st.text(max_size=20).filter(lambda text: text.isprintable() or not text)
notified = st.builds(
    EventSubject,
    st.binary(min_size=1, max_size=24),
    st.binary(min_size=1, max_size=24),
    st.floats((DAY - 2) * PERIOD_SECONDS, (DAY + 1) * PERIOD_SECONDS - 1),
    texts.filter(bool),
    st.none() | st.binary(min_size=1, max_size=24),
    texts,
)


class Days:
    def __init__(self, day: int) -> None:
        self.day = day

    def __call__(self) -> float:
        return self.day * PERIOD_SECONDS + 1.0


def expected(keys: PseudonymKeys, line: bytes, stage: Stage, about: EventSubject, **more: object) -> bytes:
    period, read = keys.at(about.received_at), decode_event(line)
    name = period.notification(about.notifier_id, about.nonce)
    number = f".{more.get('attempt', 0)}" if stage is Stage.ATTEMPTED else ""
    event = DeliveryEvent(
        id=f"{name}.{stage}{number}",
        stage=stage,
        at=read.at,
        mono=read.mono,
        router=INSTANCE,
        period=period.name,
        version=SCHEMA_VERSION,
        notification=name,
        queue=period.queue(about.notifier_id),
        token="" if about.token_id is None else period.token(about.token_id),
        smp_host=about.smp_host,
        provider=about.provider,
        **more,  # type: ignore[arg-type]
    )
    return encode_events([event])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    notified,
    texts,
    st.integers(0, 3),
    st.integers(0, 600),
    st.booleans(),
    st.sampled_from(["", "inline", "spark"]),
)
def test_lines_are_those_of_the_schema(
    tmp_path: Path, about: EventSubject, reason: str, attempt: int, size: int, first_seen: bool, engine: str
) -> None:
    """Whether or not the first stage was seen by this process."""
    keys = PseudonymKeys(tmp_path, 5, Days(DAY))
    lines = EventEncoder(keys, INSTANCE)
    lines.begin()
    if first_seen:
        line = lines.first(Stage.RECEIVED, about, size)
        assert line == expected(keys, line, Stage.RECEIVED, about, size=size)
    line = lines.attempt(about, attempt, engine)
    assert line == expected(keys, line, Stage.ATTEMPTED, about, attempt=attempt, engine=engine)
    line = lines.last(Stage.FAILED, about, reason, attempt, engine)
    assert line == expected(keys, line, Stage.FAILED, about, reason=reason, attempt=attempt, engine=engine)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=24), texts, texts, texts, texts)
def test_lines_of_changes_are_those_of_the_schema(
    tmp_path: Path, entity_id: bytes, where: str, before: str, after: str, cause: str
) -> None:
    keys = PseudonymKeys(tmp_path, 5, Days(DAY))
    encoder, period = EventEncoder(keys, INSTANCE), keys.current()
    encoder.begin()
    lines = [
        encoder.token_change(entity_id, where or "p", before, after, cause),
        encoder.subscription_change(entity_id, where or "h", after, cause),
    ]
    read = [decode_event(line) for line in lines]
    token, subscription = (
        DeliveryEvent(
            id=f"{INSTANCE}-{event.at}-{number}",
            stage=event.stage,
            at=event.at,
            mono=event.mono,
            router=INSTANCE,
            period=period.name,
            version=SCHEMA_VERSION,
            to_status=after,
            cause=cause,
        )
        for number, event in enumerate(read, 1)
    )
    replaced = msgspec.structs.replace
    token = replaced(token, token=period.token(entity_id), provider=where or "p", from_status=before)
    subscription = replaced(subscription, queue=period.queue(entity_id), smp_host=where or "h")
    assert [event.stage for event in read] == [Stage.TOKEN_CHANGED, Stage.SUBSCRIPTION_CHANGED]
    assert lines == [encode_events([token]), encode_events([subscription])]


def test_times_are_those_of_the_moment(tmp_path: Path) -> None:
    lines = EventEncoder(PseudonymKeys(tmp_path, 1, time.time), INSTANCE)
    before = time.time(), time.monotonic()
    lines.begin()
    event = decode_event(lines.first(Stage.RECEIVED, EventSubject(b"q", b"n", time.time(), "smp", b"t"), 144))
    after = time.time(), time.monotonic()
    assert int(before[0] * 1e6) <= event.at <= after[0] * 1e6
    assert int(before[1] * 1e6) <= event.mono <= after[1] * 1e6


def test_what_was_made_under_an_erased_key_is_not_used_again(tmp_path: Path) -> None:
    days = Days(DAY)
    keys = PseudonymKeys(tmp_path, 1, days)
    lines = EventEncoder(keys, INSTANCE)
    about = EventSubject(b"queue", b"nonce", days(), "smp.example.com", b"token", "APNS_PROD")
    lines.begin()
    first = decode_event(lines.first(Stage.RECEIVED, about, 144))
    days.day += 1
    lines.begin()
    assert decode_event(lines.attempt(about, 0)).notification == first.notification
    days.day += 1
    lines.begin()
    last = decode_event(lines.last(Stage.ACCEPTED, about))
    assert last.notification != first.notification
    assert last.period == keys.current().name


def test_what_is_kept_is_bounded_and_goes_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_encoder, "MOST_KEPT", 3)
    lines = EventEncoder(PseudonymKeys(tmp_path, 1, time.time), INSTANCE)
    for number in range(20):
        lines.begin()
        about = EventSubject(b"%d" % number, b"nonce", time.time(), "smp", b"token", "APNS_PROD")
        lines.first(Stage.RECEIVED, about, 144)
        assert len(lines._kept) <= 4
    lines.last(Stage.ACCEPTED, about)
    lines.first(Stage.UNKNOWN_QUEUE, EventSubject(b"unknown", b"nonce", time.time(), "smp"), 144)
    assert not {about.notifier_id + about.nonce, b"unknownnonce"} & lines._kept.keys()


def test_a_pseudonym_is_the_first_half_of_an_hmac(tmp_path: Path) -> None:
    keys = PseudonymKeys(tmp_path, 1, time.time)
    [key_file] = [path for _ in [keys.current()] for path in tmp_path.glob("*.key")]
    digest = hmac.digest(key_file.read_bytes(), b"nqueuenonce", hashlib.sha256)
    made = keys.current().notification(b"queue", b"nonce")
    assert made == urlsafe_b64encode(digest[:16]).decode().rstrip("=")


def test_what_is_kept_of_queues_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_encoder, "MOST_QUEUES", 20)
    keys = PseudonymKeys(tmp_path, 1, time.time)
    lines = EventEncoder(keys, INSTANCE)
    lines.begin()
    for number in [*range(50), 49, 0]:
        about = EventSubject(b"%d" % number, b"nonce", time.time(), "smp", b"token", "APNS_PROD")
        line = lines.first(Stage.RECEIVED, about, 144)
        assert line == expected(keys, line, Stage.RECEIVED, about, size=144)
        assert len(lines._queues) <= 20
    assert b"49" in lines._queues  # the oldest go first


def test_a_queue_that_has_another_token_or_provider_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    keys = PseudonymKeys(tmp_path, 1, time.time)
    lines = EventEncoder(keys, INSTANCE)
    lines.begin()
    for token_id, host, provider in (
        (b"first", "smp", "APNS_PROD"),
        (b"second", "smp", "APNS_PROD"),
        (b"second", "smp", "APNS_DEV"),
        (b"second", "other", "APNS_DEV"),
    ):
        about = EventSubject(b"queue", b"nonce", time.time(), host, token_id, provider)
        line = lines.first(Stage.RECEIVED, about, 144)
        assert line == expected(keys, line, Stage.RECEIVED, about, size=144)
