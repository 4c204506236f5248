"""The store with PostgreSQL behind it: what is committed is what the next router finds."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import replace

import asyncpg
import pytest

from tests.unit.smp_router.store.logs.random_changes import change_something
from tests.unit.smp_router.store.memory import test_memory_store as memory_suite
from tests.unit.smp_router.store.postgres.opened_stores import NOW, contents, cut_off, opened, stored
from tests.unit.smp_router.store.samples import (
    QUOTA,
    a_link,
    a_message,
    a_notification,
    a_notifier,
    a_queue,
    a_service,
)
from tocsin.durable.postgres.schema_owner import SchemaInUse
from tocsin.errors import StoreError
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, QueueStatus

# The suite of the store in memory (smp-tests.md 17, K1 to K3, quota, expiry, indices) holds for this one too.
CONTRACT = [
    case
    for name, case in vars(memory_suite).items()
    if name.startswith("test_") and list(inspect.signature(case).parameters) == ["store"]
]


@pytest.mark.parametrize("case", CONTRACT)
async def test_contract_of_the_store_in_memory_holds_and_is_durable(
    case: Callable[[SmpMemoryStore], None], url: str
) -> None:
    store, database = await opened(url)
    case(store)
    await store.commit()
    cut_off(database)
    assert await stored(url) == contents(store)


def test_contract_has_the_cases_of_the_specification() -> None:
    assert {"k1", "k2", "k3"} <= {case.__name__.split("_")[1] for case in CONTRACT}


CHANGES: list[Callable[[QueueRecord], QueueRecord]] = [
    lambda queue: replace(queue, sender_key=b"key of the sender"),
    lambda queue: replace(queue, recipient_keys=(b"one key", b"another", b"a third")),
    lambda queue: replace(queue, link=a_link()),
    lambda queue: replace(queue, link=None),
    lambda queue: replace(queue, notifier=a_notifier()),
    lambda queue: replace(queue, notifier=a_notifier(service_id=b"service")),
    lambda queue: replace(queue, notifier=queue.notifier and replace(queue.notifier, service_id=b"another")),
    lambda queue: replace(queue, notifier=None),
    lambda queue: replace(queue, status=QueueStatus.OFF),
    lambda queue: replace(queue, status=Blocked(BlockReason.SPAM)),
    lambda queue: replace(queue, status=Blocked(BlockReason.CONTENT, BlockNotice(None))),
    lambda queue: replace(queue, status=Blocked(BlockReason.CONTENT, BlockNotice(86_400))),
    lambda queue: replace(queue, status=QueueStatus.ACTIVE),
    lambda queue: replace(queue, updated_at=1_750_000_000),
    lambda queue: replace(queue, service_id=b"service"),
    lambda queue: replace(queue, service_id=None),
]


async def test_every_change_of_a_queue_is_found_again(url: str) -> None:
    store, database = await opened(url)
    queue = a_queue()
    store.add_queue(queue)
    for change in CHANGES:
        queue = change(queue)
        assert store.update_queue(queue)
        await store.commit()
        cut_off(database)
        store, database = await opened(url)
        assert store.queue_by_recipient(queue.recipient_id) == queue
        store.check_indices()
    store.delete_queue(queue.recipient_id)
    await database.close()
    assert (await stored(url))["queues"] == {}


async def test_a_removed_service_is_gone_and_may_come_back(url: str) -> None:
    store, database = await opened(url)
    kept, gone, back = a_service(), a_service(), a_service()
    for service in (kept, gone, back):
        store.add_service(service)
    await store.commit()
    for service in (gone, back):
        store.remove_service(service.service_id)
    store.add_service(back)
    brief = a_service()
    store.add_service(brief)
    store.remove_service(brief.service_id)
    store.check_indices()
    await database.close()
    store, database = await opened(url)
    assert {each.service_id for each in store.services()} == {kept.service_id, back.service_id}
    await database.close()


async def test_services_messages_and_notifications_are_found_again(url: str) -> None:
    store, database = await opened(url)
    queue = replace(a_queue(mode=None), notifier=a_notifier(), link=a_link())
    assert queue.notifier is not None
    store.add_service(a_service())
    store.add_queue(queue)
    for message in [a_message(body=b""), a_message(priority=0), a_message(priority=2), a_message(priority=3)]:
        store.write_message(queue.recipient_id, message, QUOTA)  # the last becomes the marker
    for _ in range(3):
        store.add_notification(queue.notifier.notifier_id, a_notification())
    assert await database.maintain()
    assert not await database.maintain()
    cut_off(database)
    assert await stored(url) == contents(store)

    store, database = await opened(url)
    first = store.head_message(queue.recipient_id)
    assert first is not None
    store.remove_message(queue.recipient_id, first.message_id)
    store.remove_notification(
        queue.notifier.notifier_id, store.notifications(queue.notifier.notifier_id)[1].nonce
    )
    await database.save()
    cut_off(database)
    assert await stored(url) == contents(store)


async def test_messages_keep_their_order_across_restarts(url: str) -> None:
    queue, messages = a_queue(), [a_message() for _ in range(6)]
    store, database = await opened(url)
    store.add_queue(queue)
    await database.close()
    for message in messages:
        store, database = await opened(url)
        store.write_message(queue.recipient_id, message, 10)
        await database.close()
    store, database = await opened(url)
    assert list(store.messages(queue.recipient_id)) == messages
    await database.close()


async def test_expired_messages_and_notifications_are_dropped_for_good(url: str) -> None:
    store, database = await opened(url)
    notifier = a_notifier()
    queue = replace(a_queue(), notifier=notifier)
    store.add_queue(queue)
    fresh = a_message(sent_at=int(NOW))
    for message in (a_message(sent_at=int(NOW) - 50), fresh):
        store.write_message(queue.recipient_id, message, QUOTA)
    store.add_notification(notifier.notifier_id, a_notification(sent_at=int(NOW) - 50))
    await database.close()
    store, database = await opened(url, message_ttl=20, notification_ttl=20)
    report = database.report
    assert (report.queues, report.messages, report.notifications) == (1, 1, 0)
    assert (report.expired_messages, report.expired_notifications) == (1, 1)
    cut_off(database)
    assert (await stored(url))["messages"] == {queue.recipient_id: (fresh,)}


@pytest.mark.parametrize("commit_between", [True, False])
async def test_another_notifier_takes_the_notifications_of_the_old_one_away(
    url: str, commit_between: bool
) -> None:
    async def step() -> None:
        if commit_between:
            await store.commit()

    store, database = await opened(url)
    old, new = a_notifier(), a_notifier()
    queue = replace(a_queue(), notifier=old)
    store.add_queue(queue)
    store.add_notification(old.notifier_id, a_notification())
    await step()
    store.update_queue(replace(queue, notifier=new))
    store.add_notification(new.notifier_id, a_notification())
    await step()
    store.update_queue(replace(queue, notifier=old))  # back again, to nothing
    store.add_notification(old.notifier_id, a_notification())
    await step()
    rekeyed = NotifierRecord(old.notifier_id, b"another key", b"another secret")
    store.update_queue(replace(queue, notifier=rekeyed))  # keeps what is there
    await store.commit()
    cut_off(database)
    assert len(store.notifications(old.notifier_id)) == 1
    assert await stored(url) == contents(store)


async def test_ids_may_move_between_queues_within_a_batch(url: str) -> None:
    store, database = await opened(url)
    notifiers, links = [a_notifier(), a_notifier()], [a_link(), a_link()]
    queues = [
        replace(a_queue(), notifier=notifier, link=link)
        for notifier, link in zip(notifiers, links, strict=True)
    ]
    for queue in queues:
        store.add_queue(queue)
    await store.commit()
    for queue in queues:
        store.update_queue(replace(queue, notifier=None, link=None))
    for queue, notifier, link in zip(queues, reversed(notifiers), reversed(links), strict=True):
        assert store.update_queue(replace(queue, notifier=notifier, link=link))
    await store.commit()
    cut_off(database)
    assert await stored(url) == contents(store)


async def test_a_queue_made_again_with_the_id_of_a_deleted_one_is_empty(url: str) -> None:
    store, database = await opened(url)
    queue = replace(a_queue(), notifier=a_notifier())
    assert queue.notifier is not None
    store.add_queue(queue)
    store.write_message(queue.recipient_id, a_message(), QUOTA)
    store.add_notification(queue.notifier.notifier_id, a_notification())
    await store.commit()
    store.delete_queue(queue.recipient_id)
    store.add_queue(replace(queue, dh_secret=b"another secret"))
    store.write_message(queue.recipient_id, a_message(), QUOTA)
    await store.commit()
    cut_off(database)
    assert await stored(url) == contents(store)


@pytest.mark.parametrize("seed", range(4))
async def test_random_changes_are_found_again(url: str, seed: int) -> None:
    chance = random.Random(seed)
    store, database = await opened(url)
    for _ in range(6):
        own = [queue.recipient_id for queue in store.queues()]
        for _ in range(chance.randrange(1, 12)):
            for _ in range(chance.randrange(1, 15)):
                change_something(store, own, 0, chance)
            await store.commit()
        before = contents(store)
        cut_off(database)
        store, database = await opened(url)
        assert contents(store) == before
    await database.close()


async def test_two_routers_do_not_share_a_schema(url: str) -> None:
    store, database = await opened(url)
    with pytest.raises(SchemaInUse, match="another router uses the schema tocsin_smp"):
        await opened(url, lock_wait=0)
    await database.close()
    await database.close()
    with pytest.raises(StoreError, match="closed"):
        await store.commit()
    assert await stored(url) == contents(store)


async def test_opening_waits_for_the_end_of_a_router_that_is_stopping(url: str) -> None:
    _, database = await opened(url)
    cut_off(database)  # the server may not have noticed yet
    assert (await stored(url))["queues"] == {}


async def test_a_database_that_is_not_there_is_an_error_without_its_password() -> None:
    with pytest.raises(StoreError, match="unavailable") as away:
        await opened("postgresql://user:hunter2@127.0.0.1:1/none")
    with pytest.raises(StoreError, match="check its URL") as wrong:
        await opened("mysql://user:hunter2@127.0.0.1/none")
    assert "hunter2" not in str(away.value) + str(wrong.value)


async def test_a_default_of_asynchronous_commits_is_overruled(url: str) -> None:
    connection = await asyncpg.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await connection.close()
    _, database = await opened(url)
    inner = database._journal._session._connection
    assert inner is not None
    assert await inner.fetchval("SHOW synchronous_commit") == "on"
    await database.close()
