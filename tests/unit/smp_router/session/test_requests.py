"""The effects of commands are values: what is sent to whom once the changes are on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, get_args, get_origin, get_type_hints

from tests.doubles.smp_harness import Queue, SmpHarness, send_command, smp_router
from tocsin.protocol.messages import Command
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.smp_router.session.requests import (
    Effect,
    PushMessage,
    PushNotifications,
    SendEvent,
    SmpQueueRequest,
)

C = TypeVar("C", bound=Command)


def request(router: SmpHarness, queue: Queue, command: C, entity_id: bytes) -> SmpQueueRequest[C]:
    """A request of the only connection, as verification would make it."""
    [peer] = router.running.router.peers
    record = router.store.queue_by_recipient(queue.recipient_id)
    assert record is not None
    return SmpQueueRequest(peer, peer.session, b"c" * 24, entity_id, command, queue=record)


async def test_a_message_to_an_empty_queue_is_pushed_and_notified() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        first = request(router, queue, send_command(b"one", notify=True), queue.sender_id)
        assert router.running.router.execute(first) == Done()
        assert first.effects == [PushMessage(queue.recipient_id), PushNotifications(notifier.notifier_id)]
        second = request(router, queue, send_command(b"two"), queue.sender_id)
        assert router.running.router.execute(second) == Done()
        assert second.effects == []  # the recipient has to acknowledge the first one before


async def test_the_head_message_follows_the_answer_to_a_subscription() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        await client.send_message(queue, b"waits")
        subscribing = request(router, queue, Subscribe(), queue.recipient_id)
        router.running.router.execute(subscribing)
        [effect] = subscribing.effects
        assert isinstance(effect, SendEvent)
        assert effect.entity_id == queue.recipient_id
        assert isinstance(effect.event, MessageReceived)
        assert queue.body(effect.event) == b"waits"


def test_no_effect_holds_a_function() -> None:
    for effect in get_args(Effect):
        for name, hint in get_type_hints(effect).items():
            assert Callable not in {get_origin(each) for each in (hint, *get_args(hint))}, (effect, name)
