"""The store in memory: smp-tests.md 17 (K1 to K3), quota, expiry, and indices that agree."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.unit.smp_router.store import samples
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.interface import SmpStore, Written
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord, QueueStatus, StoredMessage


@pytest.fixture
def store() -> SmpMemoryStore:
    return SmpMemoryStore()


def added(store: SmpMemoryStore, queue: QueueRecord | None = None) -> QueueRecord:
    queue = queue or samples.a_queue()
    assert store.add_queue(queue)
    return queue


class Messages:
    """The operations of smp-tests.md 17 on one queue."""

    def __init__(self, store: SmpMemoryStore) -> None:
        self.store = store
        self.id = added(store).recipient_id

    def write(self, message: StoredMessage) -> bool | None:
        written = self.store.write_message(self.id, message, samples.QUOTA)
        return None if written is None else written is Written.FIRST

    def peek(self) -> StoredMessage | None:
        return self.store.head_message(self.id)

    def delete(self, message: StoredMessage) -> StoredMessage | None:
        return self.store.remove_message(self.id, message.message_id)

    def delete_and_peek(self, message: StoredMessage) -> tuple[StoredMessage | None, StoredMessage | None]:
        return self.delete(message), self.peek()


def test_k1_messages_are_read_in_order_up_to_the_quota_marker(store: SmpMemoryStore) -> None:
    q = Messages(store)
    m = [samples.a_message() for _ in range(9)]
    assert [q.write(m[1]), q.write(m[2]), q.write(m[3])] == [True, False, False]
    assert q.peek() is m[1]
    assert q.peek() is m[1]
    assert q.delete(m[2]) is None
    assert q.delete(m[1]) is m[1]
    assert q.delete(m[1]) is None
    assert q.peek() is m[2]
    assert q.delete(m[1]) is None
    assert q.delete_and_peek(m[1]) == (None, m[2])
    assert q.delete_and_peek(m[2]) == (m[2], m[3])
    assert q.delete_and_peek(m[2]) == (None, m[3])
    assert q.peek() is m[3]
    assert q.delete_and_peek(m[3]) == (m[3], None)
    assert q.delete(m[2]) is None
    assert q.delete(m[3]) is None
    assert q.peek() is None
    assert q.write(m[4]) is True
    assert q.peek() is m[4]
    assert q.write(m[5]) is False
    assert q.delete_and_peek(m[3]) == (None, m[4])
    assert q.delete_and_peek(m[4]) == (m[4], m[5])
    assert [q.write(m[6]), q.write(m[7])] == [False, False]
    assert q.write(m[8]) is None
    assert q.peek() is m[5]
    assert q.delete_and_peek(m[4]) == (None, m[5])
    assert q.delete_and_peek(m[5]) == (m[5], m[6])
    assert q.delete_and_peek(m[6]) == (m[6], m[7])
    marker = StoredMessage(m[8].message_id, m[8].sent_at, 0, None)
    assert q.delete_and_peek(m[7]) == (m[7], marker)
    assert q.delete_and_peek(marker) == (marker, None)
    assert q.delete_and_peek(marker) == (None, None)
    store.delete_queue(q.id)
    store.check_indices()


def test_k2_messages_of_two_queues_do_not_meet(store: SmpMemoryStore) -> None:
    for q in (Messages(store), Messages(store)):
        for _ in range(2):
            message = samples.a_message()
            assert store.expire_messages(q.id, 0) == 0
            assert q.write(message) is True
            assert q.delete_and_peek(message) == (message, None)


def test_k3_a_queue_is_emptied_again_and_again(store: SmpMemoryStore) -> None:
    q = Messages(store)
    for _ in range(5):
        message = samples.a_message()
        assert q.write(message) is True
        assert q.delete_and_peek(message) == (message, None)
    assert list(store.queues_with_messages()) == []


def test_after_the_marker_nothing_is_stored_until_all_is_read(store: SmpMemoryStore) -> None:
    q = Messages(store)
    written = [samples.a_message() for _ in range(samples.QUOTA)]
    for message in written:
        q.write(message)
    over = samples.a_message()
    assert q.write(over) is None
    assert store.message_count(q.id) == samples.QUOTA + 1
    for message in (*written, over):
        assert q.write(samples.a_message()) is None
        assert q.delete(message) is not None
    assert store.message_count(q.id) == 0
    assert q.write(samples.a_message()) is True


def test_a_quota_made_smaller_does_not_lose_messages(store: SmpMemoryStore) -> None:
    q = Messages(store)
    for _ in range(samples.QUOTA):
        q.write(samples.a_message())
    assert store.write_message(q.id, samples.a_message(), 1) is None
    assert store.message_count(q.id) == samples.QUOTA + 1


def test_expiry_stops_at_a_young_message_and_at_the_marker(store: SmpMemoryStore) -> None:
    q = Messages(store)
    for sent_at in (1, 2, 10):
        q.write(samples.a_message(sent_at))
    q.write(samples.a_message(3))  # the marker
    assert store.expire_messages(q.id, 3) == 2
    assert store.expire_messages(q.id, 3) == 0
    assert store.expire_messages(q.id, 100) == 1
    head = store.head_message(q.id)
    assert head is not None
    assert head.is_quota_marker
    assert store.expire_messages(q.id, 100) == 0


def test_message_to_no_queue_is_not_stored(store: SmpMemoryStore) -> None:
    assert store.write_message(b"nobody", samples.a_message(), samples.QUOTA) is None
    store.check_indices()


def test_queue_is_found_by_each_of_its_ids(store: SmpMemoryStore) -> None:
    notifier, link = samples.a_notifier(), samples.a_link()
    queue = added(store, replace(samples.a_queue(), notifier=notifier, link=link))
    assert store.queue_by_recipient(queue.recipient_id) == queue
    assert store.queue_by_sender(queue.sender_id) == queue
    assert store.queue_by_notifier(notifier.notifier_id) == queue
    assert store.queue_by_link(link.link_id) == queue
    for find in (
        store.queue_by_recipient,
        store.queue_by_sender,
        store.queue_by_notifier,
        store.queue_by_link,
    ):
        assert find(b"unknown") is None
    store.delete_queue(queue.recipient_id)
    assert store.queue_by_recipient(queue.recipient_id) is None
    assert store.queue_by_sender(queue.sender_id) is None
    assert store.queue_by_notifier(notifier.notifier_id) is None
    assert store.queue_by_link(link.link_id) is None


def test_queue_with_an_id_that_is_taken_is_refused(store: SmpMemoryStore) -> None:
    first = added(store, replace(samples.a_queue(), notifier=samples.a_notifier(), link=samples.a_link()))
    other = samples.a_queue()
    for taken in (
        replace(other, recipient_id=first.recipient_id),
        replace(other, sender_id=first.sender_id),
        replace(other, notifier=first.notifier),
        replace(other, link=first.link),
    ):
        assert not store.add_queue(taken)
    assert store.queue_count() == 1
    assert not store.update_queue(other)
    assert store.add_queue(other)
    assert not store.update_queue(replace(other, notifier=first.notifier))
    assert not store.update_queue(replace(other, link=first.link))
    assert store.queue_by_recipient(other.recipient_id) == other
    store.check_indices()


def test_each_field_of_a_queue_can_be_changed(store: SmpMemoryStore) -> None:
    queue = added(store)
    for changed in (
        replace(queue, sender_key=b"key"),
        replace(queue, sender_key=b"key", recipient_keys=(b"a", b"b")),
        replace(queue, sender_key=b"key", status=Blocked(BlockReason.SPAM)),
        replace(queue, sender_key=b"key", status=QueueStatus.OFF),
        replace(
            queue,
            sender_key=b"key",
            updated_at=86_400,
            link=samples.a_link(),
            notifier=samples.a_notifier(b"s"),
        ),
        replace(queue, sender_key=b"key", updated_at=86_400, service_id=b"s"),
    ):
        assert store.update_queue(changed)
        assert store.queue_by_sender(queue.sender_id) == changed
        store.check_indices()


def test_notifications_wait_oldest_first_until_removed(store: SmpMemoryStore) -> None:
    notifier = samples.a_notifier()
    added(store, replace(samples.a_queue(), notifier=notifier))
    one, two, three = samples.a_notification(1), samples.a_notification(2), samples.a_notification(3)
    for notification in (one, two, three):
        store.add_notification(notifier.notifier_id, notification)
    assert store.notifications(notifier.notifier_id) == (one, two, three)
    assert store.notifiers_with_notifications() == [notifier.notifier_id]
    assert store.remove_notification(notifier.notifier_id, two.nonce)
    assert not store.remove_notification(notifier.notifier_id, two.nonce)
    assert len(store.expire_notifications(3)) == 1
    assert store.notifications(notifier.notifier_id) == (three,)
    assert len(store.expire_notifications(4)) == 1
    assert store.notifiers_with_notifications() == []
    assert not store.remove_notification(notifier.notifier_id, three.nonce)


def test_notifications_go_with_their_notifier_and_their_queue(store: SmpMemoryStore) -> None:
    queue = added(store, replace(samples.a_queue(), notifier=samples.a_notifier()))
    for after in (replace(queue, notifier=samples.a_notifier()), replace(queue, notifier=None), None):
        now = store.queue_by_recipient(queue.recipient_id)
        assert now is not None
        now = now if now.notifier is not None else replace(now, notifier=samples.a_notifier())
        assert store.update_queue(now)
        assert now.notifier is not None
        store.add_notification(now.notifier.notifier_id, samples.a_notification())
        if after is None:
            store.delete_queue(queue.recipient_id)
        else:
            assert store.update_queue(after)
        assert store.notifiers_with_notifications() == []
        store.check_indices()
    store.add_notification(b"nobody", samples.a_notification())
    assert store.notifiers_with_notifications() == []


def test_a_new_service_association_keeps_the_notifications(store: SmpMemoryStore) -> None:
    notifier = samples.a_notifier()
    queue = added(store, replace(samples.a_queue(), notifier=notifier))
    store.add_notification(notifier.notifier_id, samples.a_notification())
    assert store.update_queue(replace(queue, notifier=replace(notifier, service_id=b"srv")))
    assert len(store.notifications(notifier.notifier_id)) == 1


def test_associated_queues_are_counted_for_each_role(store: SmpMemoryStore) -> None:
    service = samples.a_service()
    store.add_service(service)
    assert store.service(service.service_id) is service
    assert store.service_by_fingerprint(service.fingerprint) is service
    queue = added(store, replace(samples.a_queue(), notifier=samples.a_notifier(service.service_id)))
    other = added(
        store, replace(samples.a_queue(), notifier=samples.a_notifier(), service_id=service.service_id)
    )
    assert store.associated(service.service_id, ServiceRole.NOTIFIER).count == 1
    assert store.associated(service.service_id, ServiceRole.MESSAGING).count == 1
    assert store.update_queue(
        replace(other, notifier=samples.a_notifier(service.service_id), service_id=None)
    )
    assert store.associated(service.service_id, ServiceRole.NOTIFIER).count == 2
    assert store.associated(service.service_id, ServiceRole.MESSAGING).count == 0
    store.delete_queue(queue.recipient_id)
    assert store.associated(service.service_id, ServiceRole.NOTIFIER).count == 1
    store.check_indices()


def test_it_is_an_smp_store(store: SmpMemoryStore) -> None:
    interface: SmpStore = store
    queue = samples.a_queue()
    assert interface.add_queue(queue)
    assert interface.write_message(queue.recipient_id, samples.a_message(), samples.QUOTA) is Written.FIRST


@pytest.mark.parametrize("seed", range(5))
def test_indices_agree_after_any_changes(store: SmpMemoryStore, seed: int) -> None:
    chance = random.Random(seed)
    ids = [samples.some_bytes(24) for _ in range(8)]
    for _ in range(400):
        known = list(store.queues())
        queue = chance.choice(known) if known else samples.a_queue()
        notifier = chance.choice([None, samples.a_notifier(chance.choice([None, b"s1", b"s2"]))])
        if notifier is not None and chance.random() < 0.5:
            notifier = replace(notifier, notifier_id=chance.choice(ids))
        link = chance.choice([None, samples.a_link(), replace(samples.a_link(), link_id=chance.choice(ids))])
        match chance.randrange(5):
            case 0:
                store.add_queue(replace(samples.a_queue(), notifier=notifier, link=link))
            case 1 | 2:
                service_id = chance.choice([None, b"s1", b"s2"])
                store.update_queue(replace(queue, notifier=notifier, link=link, service_id=service_id))
            case 3:
                store.write_message(queue.recipient_id, samples.a_message(), samples.QUOTA)
                if queue.notifier is not None:
                    store.add_notification(queue.notifier.notifier_id, samples.a_notification())
            case _ if len(known) > 5:
                store.delete_queue(queue.recipient_id)
        store.check_indices()
