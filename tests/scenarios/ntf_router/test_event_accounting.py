"""The event log alone adds up to the store's accounting, whatever becomes of the notifications."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.doubles.ntf_harness import ntf_router, until
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import OK, smp_router
from tests.unit.ntf_router.delivery.test_delivery import Conversation, conversation
from tocsin.events.delivery_events import ENDS, DeliveryEvent, Stage, decode_event
from tocsin.events.event_log import PUBLISHED, EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.records import Accounting
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription
from tocsin.protocol.ntf.token_commands import DeleteToken
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, TokenInvalid


def events_of(folder: Path) -> dict[str, DeliveryEvent]:
    """By id: a repeat after a crash is the same event."""
    lines = [line for path in sorted(folder.glob(PUBLISHED)) for line in path.read_bytes().splitlines()]
    return {event.id: event for event in map(decode_event, lines)}


def recount(events: dict[str, DeliveryEvent]) -> Accounting:
    received = {event.notification for event in events.values() if event.stage == Stage.RECEIVED}
    ends = [event for event in events.values() if event.stage in ENDS]
    of_each = Counter(event.notification for event in ends)
    assert set(of_each) <= received
    assert set(of_each.values()) <= {1}, "a notification has two ends"
    stages = Counter(event.stage for event in ends)
    failed = Counter(event.reason for event in ends if event.stage == Stage.FAILED)
    return Accounting(
        len(received),
        stages[Stage.ACCEPTED],
        stages[Stage.SUPERSEDED],
        dict(failed),
        len(received) - len(of_each),
    )


@pytest.mark.parametrize("seed", range(4))
async def test_the_events_add_up_to_the_accounting_of_the_store(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = EventLog(tmp_path / "log")
    keys = PseudonymKeys(tmp_path / "keys", 7, lambda: 1_700_000_000.0)
    recorder = NtfEventRecorder(log, keys, "test", NtfLatencies())
    outcomes: list[PushOutcome] = [
        *[Accepted()] * 20,
        RetryLater("connection"),
        PushRefused("PayloadTooLarge"),
        TokenInvalid(InvalidReason.BAD),
    ]
    async with (
        smp_router(notification_interval=0.0, message_quota=1000) as smp,
        ntf_router(events=recorder) as ntf,
    ):
        devices = [await ntf.active_device() for _ in range(4)]
        chats: list[tuple[Conversation, int]] = [
            (await conversation(smp, ntf, device), number)
            for number, device in enumerate(devices)
            for _ in range(3)
        ]
        sent = 0
        for turn in range(60):
            if turn % 15 == 7:
                ntf.provider.hold()
            elif turn % 15 == 12:
                ntf.provider.release(chance.choice(outcomes[:2]))
            ntf.provider.answers.append(chance.choice(outcomes))
            chat, _ = chance.choice(chats)
            await chat.send()
            sent += 1
            if turn == 40:
                assert await devices[0].ask(DeleteToken()) == OK
            if turn == 50:
                chat, number = chats[-1]
                await devices[number].client.ask(
                    DeleteSubscription(), chat.subscription_id, devices[number].key
                )
        counters = ntf.running.state.counters
        await until(lambda: counters.notifications_received + counters.notifications_received_auth == sent)
        ntf.provider.hold()
        await ntf.store.expire_pending(ntf.clock.time + 1e6)
        accounting = await ntf.store.accounting()
    log.close()
    assert accounting.difference == 0
    assert recount(events_of(tmp_path / "log")) == accounting
    assert accounting.received > 5


async def test_the_event_log_has_notifications_of_the_null_provider_too(tmp_path: Path) -> None:
    """Statistics leave them out (N4). The accounting and the log leave no notification out (docs/differences.md)."""
    log = EventLog(tmp_path / "log")
    keys = PseudonymKeys(tmp_path / "keys", 7, lambda: 1_700_000_000.0)
    recorder = NtfEventRecorder(log, keys, "test", NtfLatencies())
    null = RecordingProvider()
    providers = {PushProvider.APNS_NULL: null}
    async with (
        smp_router(notification_interval=0.0) as smp,
        ntf_router(events=recorder, provider=null, providers=providers) as ntf,
    ):
        device = await ntf.device(b"test_ntf_token", provider=PushProvider.APNS_NULL)
        await device.activate()
        chat = await conversation(smp, ntf, device)
        await chat.send()
        await device.notifications()
        accounting = await ntf.settled(1)
        counters = ntf.running.state.counters
        assert (counters.notifications_received, counters.notifications_delivered) == (0, 0)
    log.close()
    assert (accounting.received, accounting.accepted) == (1, 1)
    assert recount(events_of(tmp_path / "log")) == accounting
