"""Notifications and the events of their receivers."""

from __future__ import annotations

from tests.wire_vectors.smp_router.recorded import (
    OURS,
    answered,
    content,
    entity,
    notifier,
    part,
    queue,
    replays,
    send_notified,
    signer,
)
from tests.wire_vectors.smp_router.stage import VECTORS, Actor, Stage
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.queue_modes import NotifierKeys
from tocsin.protocol.smp.recipient_commands import DisableNotifications, EnableNotifications
from tocsin.smp_router.store.records import NotifierRecord


@replays("smp-nsub-ed25519", "smp-nmsg-ed25519", "smp-end-notifier")
async def test_a_notifier_with_an_ed25519_key(on: Stage) -> None:
    receiver = await _notify(on, "smp-nsub-ed25519", "smp-nmsg-ed25519")
    other = on.stranger()
    key = signer("smp-nsub-ed25519")
    await other.ask(SubscribeNotifications(), entity("smp-nsub-ed25519"), key)
    await on.flush()
    assert await receiver.content() == content("smp-end-notifier", "event")


@replays("smp-nsub-x25519", "smp-nmsg-x25519")
async def test_a_notifier_with_an_x25519_key(on: Stage) -> None:
    await _notify(on, "smp-nsub-x25519", "smp-nmsg-x25519")


@replays("smp-nmsg-v12")
async def test_a_notification_in_version_12(on: Stage) -> None:
    await _notify(on, "smp-nsub-v12", "smp-nmsg-v12")


async def _notify(on: Stage, subscription: str, notification: str) -> Actor:
    """NSUB as recorded, then a message with the recorded id at the recorded time."""
    decrypted = part(notification, "decrypted")
    on.add_queue(queue(notifier=notifier(subscription, decrypted.octets("secret"))))
    receiver = on.actor(VECTORS[subscription])
    await answered(receiver, subscription)
    await send_notified(on, decrypted)
    await on.notify()
    assert await receiver.content() == content(notification, "event")
    return receiver


@replays("smp-nmsg-batch3")
async def test_three_notifications_share_a_block(on: Stage) -> None:
    name = "smp-nmsg-batch3"
    events = VECTORS[name].fields.objects("events")
    secret = events[0].object("decrypted").octets("secret")
    recorded = NotifierRecord(events[0].octets("entity"), OURS.public.der, secret)
    on.add_queue(queue(notifier=recorded))
    receiver = on.actor(VECTORS[name])
    await receiver.ask(SubscribeNotifications(), recorded.notifier_id, OURS)
    for event in events:
        await send_notified(on, event.object("decrypted"))
    await on.notify()
    assert await receiver.content() == VECTORS[name].fields.octets("content")


@replays("smp-deld-nkey")
async def test_a_notifier_is_replaced(on: Stage) -> None:
    keys = NotifierKeys(OURS.public, X25519PrivateKey(b"\x08" * 32).public)
    await _notifier_gone(on, "smp-deld-nkey", EnableNotifications(keys))


@replays("smp-deld-v9")
async def test_a_notifier_is_deleted_in_version_9(on: Stage) -> None:
    await _notifier_gone(on, "smp-deld-v9", DisableNotifications())


async def _notifier_gone(on: Stage, name: str, command: EnableNotifications | DisableNotifications) -> None:
    recorded = NotifierRecord(entity(name, "event"), OURS.public.der, bytes(32))
    on.add_queue(queue(notifier=recorded))
    receiver = on.actor(VECTORS[name])
    await receiver.ask(SubscribeNotifications(), recorded.notifier_id, OURS)
    await on.stranger().ask(command, b"r" * 24, OURS)
    await on.flush()
    assert await receiver.content() == content(name, "event")
