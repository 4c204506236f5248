"""Changes that wait: last one wins, and what comes and goes is never written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.smp_router.store.samples import QUOTA, a_message, a_notification, a_notifier, a_queue
from tocsin.smp_router.store.logs import direct_log as smp_direct_log
from tocsin.smp_router.store.logs import message_log as smp_message_log
from tocsin.smp_router.store.logs import store_log as smp_store_log
from tocsin.smp_router.store.memory.memory_store import NoJournal, ServiceRemoved, SmpMemoryStore
from tocsin.smp_router.store.postgres import change_batch
from tocsin.smp_router.store.postgres.change_batch import PendingChanges, StoreChange


class Collector(NoJournal):
    """A journal that never commits."""

    uncommitted = True

    def __init__(self, store: SmpMemoryStore) -> None:
        self.pending = PendingChanges(store, 0)

    def append(self, change: StoreChange) -> None:
        self.pending.take(change)

    async def commit(self) -> None:
        raise AssertionError


@pytest.fixture
def store() -> SmpMemoryStore:
    return SmpMemoryStore()


@pytest.fixture
def pending(store: SmpMemoryStore) -> PendingChanges:
    collector = Collector(store)
    store.keep_in(collector)
    return collector.pending


def test_every_kind_of_change_is_known() -> None:
    told = smp_store_log._RECORDS.keys() | smp_message_log._CHANGES.keys() | smp_direct_log._KINDS.keys()
    assert change_batch._TAKERS.keys() == told | {ServiceRemoved.tag}


def test_a_queue_is_written_once_however_often_it_changed(
    store: SmpMemoryStore, pending: PendingChanges
) -> None:
    queue = a_queue()
    store.add_queue(queue)
    for day in range(5):
        queue = replace(queue, updated_at=day)
        store.update_queue(queue)
    [row] = pending.take_batch().queues
    assert row[0] == queue.recipient_id
    assert row[-2] == 4
    assert list(pending.take_batch().statements()) == []


def test_what_comes_and_goes_within_a_batch_is_not_written(
    store: SmpMemoryStore, pending: PendingChanges
) -> None:
    notifier = a_notifier()
    queue, short_lived = replace(a_queue(), notifier=notifier), a_queue()
    store.add_queue(queue)
    store.add_queue(short_lived)
    store.write_message(short_lived.recipient_id, a_message(), QUOTA)
    store.delete_queue(short_lived.recipient_id)
    message, notification = a_message(), a_notification()
    store.write_message(queue.recipient_id, message, QUOTA)
    store.remove_message(queue.recipient_id, message.message_id)
    store.add_notification(notifier.notifier_id, notification)
    store.remove_notification(notifier.notifier_id, notification.nonce)
    batch = pending.take_batch()
    assert [row[0] for row in batch.queues] == [queue.recipient_id]
    assert (batch.messages, batch.removed_messages, batch.notifications) == ([], [], [])


def test_statements_have_so_many_rows_at_most(store: SmpMemoryStore, pending: PendingChanges) -> None:
    for _ in range(change_batch.ROWS_PER_STATEMENT + 1):
        store.add_queue(a_queue())
    sizes = [len(columns[0]) for _, columns in pending.take_batch().statements()]
    assert sizes == [change_batch.ROWS_PER_STATEMENT, 1]
