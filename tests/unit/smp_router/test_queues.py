"""Creating, securing, suspending and deleting queues (smp-tests.md 4, smp.md 6.6)."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    INTERNAL,
    LARGE_MSG,
    NO_MSG,
    OK,
    QUOTA,
    SIG0,
    START,
    HeldClock,
    Queue,
    SmpTestClient,
    create_command,
    ed448,
    ed25519,
    send_command,
    smp_router,
    x25519,
)
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.queue_modes import NotifierKeys, QueueMode, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    DeleteQueue,
    DisableNotifications,
    EnableNotifications,
    GetMessage,
    InspectQueue,
    ReplaceRecipientKeys,
    SecureQueue,
    Subscribe,
    SuspendQueue,
)
from tocsin.protocol.smp.responses import QueueCreated, QueueInspected, Subscribed
from tocsin.protocol.smp.sender_commands import SecureQueueBySender
from tocsin.smp_router.operator import QueueOperator

LONGEST = 16048


async def check_sizes(recipient: SmpTestClient, sender: SmpTestClient, queue: Queue) -> None:
    """The end of Q1 and Q2: unsigned is refused, the longest body passes, a longer one does not."""
    assert await sender.ask(send_command(b"unsigned"), queue.sender_id) == AUTH
    longest = os.urandom(LONGEST)
    assert await sender.send_message(queue, longest) == OK
    message = await recipient.message(queue)
    assert queue.body(message) == longest
    assert await sender.send_message(queue, longest + b"!") == LARGE_MSG


async def test_q1_a_queue_is_created_secured_and_limited() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue, sender_key = await recipient.new_queue(ed448()), ed448()
        assert queue.created.service_id is None
        assert queue.created.notifier is None
        assert await sender.send_message(queue, b"hello") == OK
        message = await recipient.message(queue)
        assert queue.body(message) == b"hello"
        assert await recipient.acknowledge(queue, message) == OK
        assert await recipient.acknowledge(queue, message) == NO_MSG
        assert await sender.ask(send_command(b"hello"), queue.sender_id, sender_key) == AUTH
        secure = SecureQueue(sender_key.public)
        assert await recipient.ask(secure, queue.recipient_id, SIG0) == AUTH
        assert await recipient.ask(secure, queue.sender_id, queue.key) == AUTH
        assert await recipient.ask(secure, queue.recipient_id, queue.key) == OK
        assert await recipient.ask(secure, queue.recipient_id, queue.key) == OK
        assert await recipient.ask(SecureQueue(ed448().public), queue.recipient_id, queue.key) == AUTH
        queue = replace(queue, sender_key=sender_key)
        assert await sender.send_message(queue, b"hello again") == OK
        message = await recipient.message(queue)
        assert queue.body(message) == b"hello again"
        assert await recipient.acknowledge(queue, message) == OK
        await check_sizes(recipient, sender, queue)


async def test_q2_the_sender_secures_a_messaging_queue() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue, sender_key, other_key = await recipient.new_queue(ed448()), ed448(), ed448()
        secure = SecureQueueBySender(sender_key.public)
        assert await sender.ask(secure, queue.sender_id, SIG0) == AUTH
        assert await sender.ask(secure, queue.recipient_id, sender_key) == AUTH
        assert await sender.ask(secure, queue.sender_id, sender_key) == OK
        assert await sender.ask(SecureQueueBySender(other_key.public), queue.sender_id, other_key) == AUTH
        assert await sender.ask(secure, queue.sender_id, sender_key) == OK
        queue = replace(queue, sender_key=sender_key)
        assert await sender.send_message(queue, b"hello") == OK
        message = await recipient.message(queue)
        assert queue.body(message) == b"hello"
        assert await recipient.acknowledge(queue, message) == OK
        await check_sizes(recipient, sender, queue)


@pytest.mark.parametrize("mode", [QueueMode.CONTACT, None])
async def test_q3_the_sender_cannot_secure_any_other_queue(mode: QueueMode | None) -> None:
    async with smp_router() as router:
        recipient, sender, key = await router.connect(), await router.connect(), ed448()
        queue = await recipient.new_queue(ed448(), mode=mode)
        assert await sender.ask(SecureQueueBySender(key.public), queue.sender_id, key) == AUTH
        assert await recipient.ask(SecureQueue(key.public), queue.recipient_id, queue.key) == OK


async def test_q4_several_recipient_keys() -> None:
    async with smp_router() as router:
        client, first, second = await router.connect(), ed25519(), ed25519()
        queue = await client.new_queue(first, mode=QueueMode.CONTACT)

        async def replace_keys(*keys: AuthPrivateKey, by: AuthPrivateKey) -> None:
            command = ReplaceRecipientKeys(tuple(key.public for key in keys))
            assert await client.ask(command, queue.recipient_id, by) == OK

        async def may_inspect(key: AuthPrivateKey) -> bool:
            answer = await client.ask(InspectQueue(), queue.recipient_id, key)
            assert isinstance(answer, QueueInspected) or answer == AUTH
            return isinstance(answer, QueueInspected)

        await replace_keys(first, second, by=first)
        assert await may_inspect(first)
        assert await may_inspect(first)
        await replace_keys(second, by=second)
        assert not await may_inspect(first)
        await replace_keys(first, second, by=second)
        assert await may_inspect(first)
        await replace_keys(second, by=first)
        assert not await may_inspect(first)
        assert await may_inspect(second)


async def test_only_contact_queues_have_several_recipient_keys() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.new_queue()
        command = ReplaceRecipientKeys((queue.key.public, ed25519().public))
        assert await client.ask(command, queue.recipient_id, queue.key) == AUTH


async def test_q5_a_queue_is_suspended_and_deleted() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        assert await sender.send_message(queue, b"hello") == OK
        assert await sender.send_message(queue, b"hello 2") == OK
        first = await recipient.message(queue)
        assert queue.body(first) == b"hello"
        assert await recipient.ask(SuspendQueue(), queue.recipient_id, SIG0) == AUTH
        assert await recipient.ask(SuspendQueue(), queue.sender_id, queue.key) == AUTH
        assert await recipient.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await sender.send_message(queue, b"signed") == AUTH
        assert await sender.ask(send_command(b"unsigned"), queue.sender_id) == AUTH
        assert await recipient.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await recipient.ask(Subscribe(), queue.recipient_id, queue.key) == Subscribed()
        assert await recipient.message(queue) == first
        assert await recipient.ask(DeleteQueue(), queue.recipient_id, SIG0) == AUTH
        assert await recipient.ask(DeleteQueue(), queue.sender_id, queue.key) == AUTH
        assert await recipient.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await sender.send_message(queue, b"signed") == AUTH
        assert await sender.ask(send_command(b"unsigned"), queue.sender_id) == AUTH
        for command in (AcknowledgeMessage(b""), SuspendQueue(), Subscribe(), DeleteQueue(), GetMessage()):
            assert await recipient.ask(command, queue.recipient_id, queue.key) == AUTH
        await recipient.nothing()


async def test_the_size_of_a_message_is_looked_at_before_the_queues_state() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await client.send_message(queue, bytes(LONGEST + 1)) == LARGE_MSG
        assert await client.ask(send_command(bytes(LONGEST + 1)), queue.sender_id) == AUTH


async def test_q6_many_queues_with_empty_correlation_ids_over_several_connections() -> None:
    async with smp_router() as router:
        creator, second, third = await router.connect(), await router.connect(), await router.connect()
        key = ed25519()
        queues = [await creator.new_queue(key, corr_id=b"") for _ in range(50)]
        assert len({queue.recipient_id for queue in queues}) == 50
        await creator.close()
        for client in (second, third):
            for queue in queues:
                answer = await client.ask(Subscribe(), queue.recipient_id, key, corr_id=b"")
                assert answer == Subscribed()
            await client.close()


async def test_q7_new_queues_can_be_switched_off() -> None:
    async with smp_router(new_queues=False) as router:
        client, key = await router.connect(), ed25519()
        assert await client.ask(create_command(key, x25519()), key=key) == AUTH


async def test_a_password_for_new_queues_must_be_right_where_there_is_one() -> None:
    async with smp_router(create_password="correct") as router:
        for version in (8, 18):
            client, key = await router.connect(version), ed25519()
            for password in (None, b"wrong", b""):
                command = create_command(key, x25519(), password=password)
                assert await client.ask(command, key=key) == AUTH
            await client.new_queue(key, password=b"correct")
    async with smp_router() as router:
        client = await router.connect()
        await client.new_queue(password=b"superfluous")


async def test_new_is_signed_by_the_key_inside_it() -> None:
    async with smp_router() as router:
        client = await router.connect()
        for key in (ed25519(), ed448(), x25519()):
            assert await client.ask(create_command(ed25519(), x25519()), key=key) == AUTH
            await client.new_queue(key)


async def test_each_new_makes_another_queue() -> None:
    async with smp_router() as router:
        client, key = await router.connect(), ed25519()
        first, second = await client.new_queue(key), await client.new_queue(key)
        assert len({first.recipient_id, first.sender_id, second.recipient_id, second.sender_id}) == 4


async def test_a_queue_can_be_created_without_subscribing() -> None:
    async with smp_router() as router:
        client, sender = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await sender.send_message(queue, b"hello") == OK
        await client.nothing()
        answer = await client.ask(GetMessage(), queue.recipient_id, queue.key)
        assert queue.body(answer) == b"hello"


async def test_notifier_keys_in_new_make_a_notifier() -> None:
    async with smp_router() as router:
        client, key, dh_key, notifier_key = await router.connect(), ed25519(), x25519(), ed25519()
        command = create_command(key, dh_key, notifier=NotifierKeys(notifier_key.public, x25519().public))
        created = await client.expect(QueueCreated, command, key=key)
        assert created.notifier is not None
        assert router.store.queue_by_notifier(created.notifier.notifier_id) is not None
        assert await client.ask(DisableNotifications(), created.recipient_id, key) == OK
        assert await client.ask(DisableNotifications(), created.recipient_id, key) == OK


async def test_information_about_a_queue() -> None:
    clock = HeldClock(START + 1)
    async with smp_router(clock=clock) as router:
        client, other = await router.connect(), await router.connect()
        queue = await client.secured_queue()

        async def information(asking: SmpTestClient) -> str:
            answer = await asking.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
            return answer.json.decode()

        assert await information(client) == (
            '{"qiSnd":true,"qiNtf":false,"qiSub":{"qSubThread":"noSub"},"qiSize":0}'
        )
        assert await information(other) == '{"qiSnd":true,"qiNtf":false,"qiSize":0}'
        await client.enable_notifications(queue)
        assert await other.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        message_id = base64.b64encode(message.message_id).decode()
        head = f'"qiMsg":{{"msgId":"{message_id}","msgTs":"2023-11-14T22:13:21Z","msgType":"message"}}'
        assert await information(client) == (
            f'{{"qiSnd":true,"qiNtf":true,"qiSub":{{"qSubThread":"noSub","qDelivered":"{message_id}"}},'
            f'"qiSize":1,{head}}}'
        )
        assert await other.ask(GetMessage(), queue.recipient_id, queue.key) == message
        assert await information(other) == (
            f'{{"qiSnd":true,"qiNtf":true,"qiSub":{{"qSubThread":"prohibitSub","qDelivered":"{message_id}"}},'
            f'"qiSize":1,{head}}}'
        )


async def test_information_counts_the_quota_marker() -> None:
    async with smp_router(message_quota=1) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        for body in (b"1", b"2", b"3"):
            await client.send_message(queue, body)
        answer = await client.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
        assert json.loads(answer.json)["qiSize"] == 2
        message = await client.ask(GetMessage(), queue.recipient_id, queue.key)
        assert queue.body(message) == b"1"


async def test_the_day_of_last_use_is_kept() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock) as router:
        client = await router.connect()
        queue = await client.new_queue()
        clock.time += 86_400
        await client.ask(InspectQueue(), queue.recipient_id, queue.key)
        record = router.store.queue_by_recipient(queue.recipient_id)
        assert record is not None
        assert record.updated_at == clock.time - clock.time % 86_400


@pytest.mark.parametrize(
    ("version", "asked", "stored"),
    [
        (6, QueueMode.MESSAGING, None),
        (8, QueueMode.MESSAGING, None),
        (9, QueueMode.MESSAGING, QueueMode.MESSAGING),
        (14, QueueMode.CONTACT, QueueMode.CONTACT),
        (15, QueueMode.MESSAGING, QueueMode.MESSAGING),
        (15, QueueMode.CONTACT, QueueMode.CONTACT),
        (15, None, None),
        (18, None, None),
    ],
)
async def test_what_may_be_done_to_a_queue_depends_on_the_mode_that_its_version_could_say(
    version: int, asked: QueueMode, stored: QueueMode | None
) -> None:
    """Before v9 NEW cannot say it, up to v14 it is a flag (smp.md 6.6)."""
    async with smp_router() as router:
        creator, newest, key = await router.connect(version), await router.connect(), ed25519()
        queue = await creator.new_queue(mode=asked)
        keys = ReplaceRecipientKeys((queue.key.public,))
        contact, messaging = stored is QueueMode.CONTACT, stored is QueueMode.MESSAGING
        assert await newest.ask(keys, queue.recipient_id, queue.key) == (OK if contact else AUTH)
        secure = SecureQueueBySender(key.public)
        assert await newest.ask(secure, queue.sender_id, key) == (OK if messaging else AUTH)


async def test_recipient_and_sender_may_secure_a_queue_with_the_same_key() -> None:
    async with smp_router() as router:
        client, key, other = await router.connect(), ed25519(), ed25519()
        queue = await client.new_queue()
        assert await client.ask(SecureQueue(key.public), queue.recipient_id, queue.key) == OK
        assert await client.ask(SecureQueueBySender(other.public), queue.sender_id, other) == AUTH
        assert await client.ask(SecureQueueBySender(key.public), queue.sender_id, key) == OK
        assert await client.ask(SecureQueue(key.public), queue.recipient_id, queue.key) == OK
        assert await client.ask(SecureQueue(other.public), queue.recipient_id, queue.key) == AUTH


async def test_the_state_of_a_queue_is_looked_at_before_its_quota() -> None:
    async with smp_router(message_quota=1) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"1") == OK
        assert await client.send_message(queue, b"2") == QUOTA
        blocked = Blocked(BlockReason.SPAM)
        assert await QueueOperator(router.running.state).block(queue.sender_id, blocked)
        assert await client.send_message(queue, b"2") == Refused(blocked)
        assert await QueueOperator(router.running.state).unblock(queue.sender_id)
        assert await client.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await client.send_message(queue, b"2") == AUTH


async def test_receiving_goes_on_after_a_queue_was_suspended() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        for body in (b"1", b"2"):
            assert await sender.send_message(queue, body) == OK
        first = await recipient.message(queue)
        assert await recipient.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        second = await recipient.acknowledged(queue, first)
        assert queue.body(second) == b"2"
        assert await recipient.acknowledge(queue, second) == OK


class UnluckyRandomness:
    """Gives these ids in turn, then new ones."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []

    def new_id(self) -> bytes:
        return self.ids.pop(0) if self.ids else os.urandom(24)

    def new_dh_key(self) -> X25519PrivateKey:
        return x25519()


async def test_ids_that_are_taken_are_drawn_again_three_times() -> None:
    randomness = UnluckyRandomness()
    async with smp_router(randomness=randomness) as router:
        client, key = await router.connect(), ed25519()
        queue = await client.new_queue(key)
        taken = [queue.recipient_id, queue.sender_id]
        randomness.ids = taken * 2
        created = await client.expect(QueueCreated, create_command(key, x25519()), key=key)
        assert {created.recipient_id, created.sender_id}.isdisjoint(taken)
        randomness.ids = taken * 3
        assert await client.ask(create_command(key, x25519()), key=key) == INTERNAL
        assert randomness.ids == []


async def test_notifier_ids_that_are_taken_are_drawn_again_three_times() -> None:
    randomness = UnluckyRandomness()
    async with smp_router(randomness=randomness) as router:
        client = await router.connect()
        first, second = await client.new_queue(), await client.new_queue()
        taken = (await client.enable_notifications(first)).notifier_id
        randomness.ids = [taken] * 2
        assert (await client.enable_notifications(second)).notifier_id != taken
        randomness.ids = [taken] * 3
        command = EnableNotifications(NotifierKeys(ed25519().public, x25519().public))
        assert await client.ask(command, second.recipient_id, second.key) == INTERNAL


async def test_a_router_that_is_full_refuses_new_queues() -> None:
    async with smp_router(max_queues=1) as router:
        client = await router.connect()
        queue = await client.new_queue()
        key = ed25519()
        assert await client.ask(create_command(key, x25519()), key=key) == QUOTA
        assert router.running.state.counters.queues_refused == 1
        assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        await client.new_queue()
