"""Messages and the events of their recipients."""

from __future__ import annotations

from typing import Any

from tests.wire_vectors.smp_router.recorded import (
    OURS,
    SPAM,
    answered,
    content,
    entity,
    key_der,
    message,
    part,
    queue,
    received_in,
    recorded_message,
    replays,
    send,
)
from tests.wire_vectors.smp_router.stage import VECTORS, Stage
from tocsin.crypto.boxes import box_key
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, unseal_delivered
from tocsin.protocol.smp.recipient_commands import AcknowledgeMessage, DeleteQueue, Subscribe
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.smp_router.operator import QueueOperator


@replays("smp-send-unsecured", "smp-msg-event", "smp-ack-ok", "smp-ack-repeated")
async def test_a_message_is_sent_delivered_and_acknowledged(on: Stage) -> None:
    recorded = recorded_message("smp-msg-event")
    own_id = entity("smp-msg-event", "event")
    secret = part("smp-msg-event", "decrypted").octets("secret")
    on.add_queue(queue(own_id, entity("smp-send-unsecured"), keys=(key_der("smp-ack-ok"),), secret=secret))
    on.clock.time = recorded.sent_at
    on.randomness.ids.append(recorded.message_id)
    recipient, sender = on.actor(VECTORS["smp-msg-event"]), on.actor(VECTORS["smp-send-unsecured"])
    await recipient.ask(Subscribe(), own_id, OURS)
    await answered(sender, "smp-send-unsecured")
    assert await recipient.content() == content("smp-msg-event", "event")
    await answered(recipient, "smp-ack-ok")
    await answered(recipient, "smp-ack-repeated")


@replays("smp-ack-next")
async def test_the_next_message_answers_the_acknowledgement(on: Stage) -> None:
    name = "smp-ack-next"
    secret = part(name, "decrypted").octets("secret")
    on.add_queue(queue(entity(name), keys=(key_der(name),), secret=secret))
    first = part(name, "request", "command").octets("msg_id")
    for each in (message(first, on.clock.time, b"second message"), recorded_message(name)):
        assert on.store.write_message(entity(name), each, 128)
    recipient = on.actor(VECTORS[name])
    await recipient.ask(Subscribe(), entity(name), OURS)
    await answered(recipient, name)


@replays("smp-get-subscribed")
async def test_a_subscriber_may_not_fetch(on: Stage) -> None:
    await _subscribed_before(on, "smp-get-subscribed")


@replays("smp-que-empty")
async def test_information_about_an_empty_queue(on: Stage) -> None:
    await _subscribed_before(on, "smp-que-empty", sender_key=OURS.public.der)


async def _subscribed_before(on: Stage, name: str, **more: Any) -> None:
    on.add_queue(queue(entity(name), keys=(key_der(name),), **more))
    recipient = on.actor(VECTORS[name])
    await recipient.ask(Subscribe(), entity(name), OURS)
    await answered(recipient, name)


@replays("smp-sub-redeliver")
async def test_a_repeated_subscription_delivers_again(on: Stage) -> None:
    """The message is read from the recorded answer with the secret of the queue, which other vectors tell."""
    name = "smp-sub-redeliver"
    secret = part("smp-msg-event", "decrypted").octets("secret")
    recipient = on.actor(VECTORS[name])
    recorded = received_in(recipient, content(name, "response"))[1].response
    assert isinstance(recorded, MessageReceived)
    delivered = unseal_delivered(box_key(secret), recorded.message_id, recorded.sealed)
    assert isinstance(delivered, DeliveredMessage)
    on.add_queue(queue(entity(name), keys=(key_der(name),), secret=secret))
    stored = message(recorded.message_id, delivered.sent_at, delivered.body, notify=delivered.flags.notify)
    assert on.store.write_message(entity(name), stored, 128)
    await recipient.ask(Subscribe(), entity(name), OURS)
    await answered(recipient, name)


@replays("smp-msg-quota", message_quota=1)
async def test_the_quota_marker_is_delivered(on: Stage) -> None:
    name = "smp-msg-quota"
    decrypted, own_id = part(name, "decrypted"), entity(name, "event")
    on.add_queue(queue(own_id, secret=decrypted.octets("secret")))
    assert on.store.write_message(own_id, message(b"m" * 24, on.clock.time, b"the last"), 1)
    recipient, sender = on.actor(VECTORS[name]), on.stranger()
    await recipient.ask(Subscribe(), own_id, OURS)
    on.clock.time = decrypted.object("message").integer("ts")
    on.randomness.ids.append(decrypted.octets("nonce"))
    assert (await sender.ask(send(b"one too many"), b"s" * 24, None)).endswith(b"ERR QUOTA")
    corr_id = part(name, "event").octets("corr")
    answer = await recipient.ask(AcknowledgeMessage(b"m" * 24), own_id, OURS, corr_id)
    assert answer == content(name, "event")


@replays("smp-event-blocked-v18")
async def test_the_subscriber_is_told_of_a_block(on: Stage) -> None:
    own_id = entity("smp-event-blocked-v18", "event")
    on.add_queue(queue(own_id))
    recipient = on.actor(VECTORS["smp-event-blocked-v18"])
    await recipient.ask(Subscribe(), own_id, OURS)
    assert await QueueOperator(on.running.state).block(b"s" * 24, SPAM)
    assert await recipient.content() == content("smp-event-blocked-v18", "event")


@replays("smp-end-recipient")
async def test_a_subscription_ends(on: Stage) -> None:
    own_id = entity("smp-end-recipient", "event")
    on.add_queue(queue(own_id))
    first, second = on.actor(VECTORS["smp-end-recipient"]), on.stranger()
    await first.ask(Subscribe(), own_id, OURS)
    await second.ask(Subscribe(), own_id, OURS)
    await on.flush()
    assert await first.content() == content("smp-end-recipient", "event")


@replays("smp-deld-recipient")
async def test_a_queue_is_deleted_by_another_connection(on: Stage) -> None:
    own_id = entity("smp-deld-recipient", "event")
    on.add_queue(queue(own_id))
    first, second = on.actor(VECTORS["smp-deld-recipient"]), on.stranger()
    await first.ask(Subscribe(), own_id, OURS)
    await second.ask(DeleteQueue(), own_id, OURS)
    await on.flush()
    assert await first.content() == content("smp-deld-recipient", "event")
