"""Each stage of a notification in the event log, under pseudonyms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.doubles.delivery_lines import encode_events
from tocsin.events.delivery_events import SCHEMA_VERSION, DeliveryEvent, Stage, decode_event
from tocsin.events.event_log import PUBLISHED, EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router import event_recorder as unknown_queue_limit
from tocsin.ntf_router.delivery.pushes import INLINE, SPARK, NotificationPush
from tocsin.ntf_router.event_recorder import INTERVAL_SECONDS, NtfEventRecorder, UnknownQueueLimit
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.records import (
    NotRecorded,
    PendingNotification,
    ReceivedNotification,
    Recorded,
    SettledNotification,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

LOCATION = RouterLocation(("smp.example", "x.onion"), "", b"k" * 32)
ROUTER = RouterAddress(Scheme.SMP, LOCATION)
NOTIFIER, NONCE, OLD_NONCE, TOKEN_ID = b"N" * 24, b"C" * 24, b"O" * 24, b"T" * 24
TOKEN = TokenRecord(
    TOKEN_ID,
    DeviceToken(PushProvider.APNS_PROD, b"abcd"),
    TokenStatus(TokenState.ACTIVE),
    b"verify",
    b"private",
    b"secret",
    b"code",
)
RECEIVED = ReceivedNotification(NOTIFIER, NONCE, b"m" * 144, 1.0)


def pending() -> PendingNotification:
    return PendingNotification(1.0, NONCE, b"text", b"s" * 24, NotifierQueue(LOCATION, NOTIFIER))


def push(pending: list[PendingNotification], attempt: int) -> NotificationPush:
    return NotificationPush(TOKEN, pending, pending, b"", False, attempt)


def ended(outcome: str, attempt: int) -> SettledNotification:
    queue = NotifierQueue(LOCATION, NOTIFIER)
    return SettledNotification(
        TOKEN_ID, b"s" * 24, NONCE, outcome, queue, PushProvider.APNS_PROD, 1.0, attempt
    )


@dataclass
class Recording:
    folder: Path
    recorder: NtfEventRecorder
    log: EventLog
    latencies: NtfLatencies
    keys: PseudonymKeys

    def events(self) -> list[DeliveryEvent]:
        """All, in order; nothing can be recorded afterwards."""
        self.log.close()
        paths = sorted((self.folder / "events").glob(PUBLISHED))
        return [decode_event(line) for path in paths for line in path.read_bytes().splitlines()]

    @property
    def notification(self) -> str:
        return self.keys.current().notification(NOTIFIER, NONCE)


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    keys = PseudonymKeys(tmp_path / "keys", 30, lambda: 1_794_700_000.0)
    log, latencies = EventLog(tmp_path / "events"), NtfLatencies()
    yield Recording(tmp_path, NtfEventRecorder(log, keys, "router1", latencies), log, latencies, keys)
    log.close()


def test_a_notification_that_came(recording: Recording) -> None:
    recorded = Recorded(TOKEN_ID, PushProvider.APNS_PROD, None)
    recording.recorder.received(ROUTER, [RECEIVED], [recorded])
    [event] = recording.events()
    period = recording.keys.current()
    assert event.stage == Stage.RECEIVED
    assert event.id == f"{recording.notification}.received"
    assert event.notification == recording.notification
    assert (event.queue, event.token) == (period.queue(NOTIFIER), period.token(TOKEN_ID))
    assert (event.smp_host, event.provider, event.size) == ("smp.example", "apns_prod", 144)
    assert (event.router, event.period) == ("router1", period.name)


@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("engine", [INLINE, SPARK])
def test_events_name_the_engine_that_pushed(recording: Recording, engine: str, attempt: int) -> None:
    recording.recorder.received(ROUTER, [RECEIVED], [Recorded(TOKEN_ID, PushProvider.APNS_PROD, None)])
    replace = msgspec.structs.replace
    recording.recorder.attempted([replace(push([pending()], attempt), engine=engine)])
    recording.recorder.settled(
        [replace(ended(outcome, attempt), engine=engine) for outcome in ("accepted", "no")]
    )
    events = recording.events()
    assert [event.engine for event in events] == ["", engine, engine, engine]
    assert {event.version for event in events} == {SCHEMA_VERSION}


@pytest.mark.parametrize("at", [1.0, 1_794_700_000.0], ids=["of another day", "of today"])
def test_lines_are_those_of_the_schema_and_counted(recording: Recording, at: float) -> None:
    """Also those that are put together for many notifications at a time."""
    queue = NotifierQueue(LOCATION, NOTIFIER)
    nonces = [b"%024d" % number for number in range(6)]
    sizes = (144, 144, 0, 10, 144, 144)
    came = [
        ReceivedNotification(NOTIFIER, nonce, b"m" * size, at)
        for nonce, size in zip(nonces, sizes, strict=True)
    ]
    recorded = [Recorded(TOKEN_ID, provider, None) for provider in PushProvider]
    recording.recorder.received(ROUTER, came, recorded)
    waiting = [PendingNotification(at, nonce, b"text", b"s" * 24, queue) for nonce in nonces]
    recording.recorder.attempted([push(waiting[:3], 0), push(waiting[3:], 2)])
    recording.recorder.settled(
        [
            SettledNotification(
                TOKEN_ID, b"s" * 24, nonce, outcome, queue, PushProvider.APNS_PROD, at, attempt
            )
            for nonce, outcome, attempt in zip(
                nonces,
                ("accepted", "accepted", "Forbidden", "accepted", "no", "no"),
                (0, 0, 0, 2, 2, 2),
                strict=True,
            )
        ]
    )
    events = recording.events()
    [segment] = (recording.folder / "events").glob(PUBLISHED)
    assert segment.read_bytes() == encode_events(events)
    assert len(events) == recording.log.written == 18
    assert [event.attempt for event in events] == [0] * 9 + [2, 2, 2] + [0, 0, 0, 2, 2, 2]
    assert len({event.id for event in events}) == 18
    assert tuple(event.size for event in events[:6]) == sizes
    assert [event.provider for event in events[:6]] == [each.text for each in PushProvider]
    assert sum(recording.latencies.received_to_accepted.counts) == 3


def test_one_that_took_the_place_of_another(recording: Recording) -> None:
    recorded = Recorded(TOKEN_ID, PushProvider.APNS_PROD, OLD_NONCE)
    recording.recorder.received(ROUTER, [RECEIVED], [recorded])
    superseded, received = recording.events()
    assert superseded.stage == Stage.SUPERSEDED
    assert superseded.notification == recording.keys.current().notification(NOTIFIER, OLD_NONCE)
    assert received.stage == Stage.RECEIVED
    assert received.queue == superseded.queue


def test_one_for_an_unknown_queue(recording: Recording) -> None:
    recording.recorder.received(ROUTER, [RECEIVED], [NotRecorded.UNKNOWN_QUEUE])
    [event] = recording.events()
    assert event.stage == Stage.UNKNOWN_QUEUE
    assert (event.token, event.provider) == ("", "")


def test_one_that_came_twice_is_written_once(recording: Recording) -> None:
    recording.recorder.received(ROUTER, [RECEIVED], [NotRecorded.DUPLICATE])
    assert recording.events() == []


def test_attempts_are_numbered(recording: Recording) -> None:
    for attempt in (0, 1):
        recording.recorder.attempted([push([pending()], attempt)])
    assert [event.id for event in recording.events()] == [
        f"{recording.notification}.attempted.{attempt}" for attempt in (0, 1)
    ]


def test_acceptance_is_an_end_and_a_latency(recording: Recording) -> None:
    recording.recorder.settled([ended("accepted", 1)])
    [event] = recording.events()
    assert (event.stage, event.reason, event.attempt) == (Stage.ACCEPTED, "", 1)
    assert sum(recording.latencies.received_to_accepted.counts) == 1


def test_failure_is_an_end_with_a_reason(recording: Recording) -> None:
    recording.recorder.settled([ended("token_invalid", 0)])
    [event] = recording.events()
    assert (event.stage, event.reason) == (Stage.FAILED, "token_invalid")
    assert sum(recording.latencies.received_to_accepted.counts) == 0


def test_changes_of_tokens_and_subscriptions(recording: Recording) -> None:
    before, after = TokenStatus(TokenState.REGISTERED), TokenStatus(TokenState.ACTIVE)
    recording.recorder.token_changed(TOKEN, before, after, "TVFY")
    recording.recorder.subscriptions_changed(LOCATION, [(NOTIFIER, SubscriptionState.ACTIVE)], "NSUB")
    token, subscription = recording.events()
    assert (token.stage, token.from_status, token.to_status) == (Stage.TOKEN_CHANGED, "REGISTERED", "ACTIVE")
    assert (subscription.stage, subscription.to_status) == (Stage.SUBSCRIPTION_CHANGED, "ACTIVE")
    assert token.id != subscription.id


def test_the_same_thing_written_twice_has_the_same_id(tmp_path: Path, recording: Recording) -> None:
    """A crash between the event log and the store makes the router do it again."""
    recorded = Recorded(TOKEN_ID, PushProvider.APNS_PROD, OLD_NONCE)
    recording.recorder.received(ROUTER, [RECEIVED], [recorded])
    recording.recorder.settled([ended("accepted", 0)])
    keys = PseudonymKeys(tmp_path / "keys", 30, lambda: 1_794_700_000.0)
    again = NtfEventRecorder(recording.log, keys, "router1", NtfLatencies())
    again.received(ROUTER, [RECEIVED], [recorded])
    again.settled([ended("accepted", 0)])
    ids = [event.id for event in recording.events()]
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3


def test_no_identifier_is_in_clear(recording: Recording) -> None:
    recorded = Recorded(TOKEN_ID, PushProvider.APNS_PROD, OLD_NONCE)
    recording.recorder.received(ROUTER, [RECEIVED], [recorded])
    recording.recorder.settled([ended("accepted", 0)])
    recording.events()
    written = b"".join(path.read_bytes() for path in (recording.folder / "events").iterdir())
    for secret in (NOTIFIER, NONCE, OLD_NONCE, TOKEN_ID, b"abcd"):
        assert secret not in written
        assert secret.hex().encode() not in written


def test_without_a_log_only_latencies_are_kept() -> None:
    latencies = NtfLatencies()
    recorder = NtfEventRecorder(None, None, "router1", latencies)
    recorder.received(ROUTER, [RECEIVED], [Recorded(TOKEN_ID, PushProvider.APNS_PROD, None)])
    recorder.attempted([push([pending()], 0)])
    recorder.token_changed(TOKEN, None, TOKEN.status, "TNEW")
    recorder.subscriptions_changed(LOCATION, [(NOTIFIER, SubscriptionState.ACTIVE)], "NSUB")
    recorder.settled([ended("accepted", 0)])
    assert sum(latencies.received_to_accepted.counts) == 1


def test_all_stages_of_a_notification_have_the_pseudonym_of_the_day_it_came(tmp_path: Path) -> None:
    """Received before midnight, accepted after it."""
    midnight = 1_700_006_400.0
    now = midnight - 1
    log = EventLog(tmp_path / "events")
    keys = PseudonymKeys(tmp_path / "keys", 30, lambda: now)
    recorder = NtfEventRecorder(log, keys, "router1", NtfLatencies())
    came = RECEIVED._replace(received_at=now)
    recorder.received(ROUTER, [came], [Recorded(TOKEN_ID, PushProvider.APNS_PROD, None)])
    now = midnight + 1
    queue = NotifierQueue(LOCATION, NOTIFIER)
    end = SettledNotification(
        TOKEN_ID, b"s" * 24, NONCE, "accepted", queue, PushProvider.APNS_PROD, midnight - 1
    )
    recorder.settled([end])
    log.close()
    [segment] = (tmp_path / "events").glob(PUBLISHED)
    received, accepted = [decode_event(line) for line in segment.read_bytes().splitlines()]
    assert received.notification == accepted.notification
    assert received.period == accepted.period != keys.current().name


def test_one_smp_router_cannot_fill_the_log_with_unknown_queues(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_queue_limit, "EVENTS_PER_INTERVAL", 3)
    now = [0.0]
    monkeypatch.setattr(recording.recorder, "_unknown", UnknownQueueLimit(lambda: now[0]))

    def come(count: int, router: RouterAddress = ROUTER) -> None:
        recording.recorder.received(router, [RECEIVED] * count, [NotRecorded.UNKNOWN_QUEUE] * count)

    come(2)
    come(2)
    come(5)
    recording.recorder.received(ROUTER, [RECEIVED], [Recorded(TOKEN_ID, PushProvider.APNS_PROD, None)])
    come(2, RouterAddress(Scheme.SMP, RouterLocation(("other.example.com",), "", bytes(32))))
    assert recording.log.left_out == 6
    now[0] += INTERVAL_SECONDS
    come(1)
    stages = [event.stage for event in recording.events()]
    assert stages == [Stage.UNKNOWN_QUEUE] * 3 + [Stage.RECEIVED] + [Stage.UNKNOWN_QUEUE] * 3
