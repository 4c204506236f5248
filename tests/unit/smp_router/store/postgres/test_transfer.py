"""A store from logs into a database and back: all of it, in its order, and nothing if anything is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from tests.unit.smp_router.store.postgres.opened_stores import contents, opened, stored
from tests.unit.smp_router.store.samples import (
    a_link,
    a_location,
    a_message,
    a_notification,
    a_notifier,
    a_packet,
    a_queue,
    a_service,
)
from tocsin.durable.postgres.schema_owner import SchemaInUse
from tocsin.errors import StoreError
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.smp_router.store.interface import NtfRouterRecord, StoreTotals, totals_of
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_LOG,
    DIRECT_LOG,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    STORE_LOG,
)
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres import change_batch
from tocsin.smp_router.store.postgres import transfer as store_transfer
from tocsin.smp_router.store.postgres.transfer import (
    fill_database,
    read_whole_database,
    require_empty_database,
)
from tocsin.smp_router.store.records import QueueStatus


def no_progress(_count: int) -> None:
    pass


def a_store() -> SmpMemoryStore:
    """Of everything: queues of each kind, a full one, notifications, services."""
    store, service = SmpMemoryStore(), a_service()
    store.add_service(service)
    blocked = Blocked(BlockReason.SPAM, BlockNotice(3600))
    queues = [
        a_queue(),
        replace(a_queue(QueueMode.CONTACT), link=a_link(), sender_key=b"key", updated_at=86_400),
        replace(a_queue(None), status=blocked, recipient_keys=(b"one", b"two")),
        replace(a_queue(), status=QueueStatus.OFF, service_id=service.service_id),
        replace(a_queue(), notifier=a_notifier(service.service_id)),
    ]
    for queue in queues:
        assert store.add_queue(queue)
    for number in range(4):  # one more than the quota: the marker
        store.write_message(queues[0].recipient_id, a_message(number, b"%d" % number), 3)
    store.write_message(queues[1].recipient_id, a_message(body=b""), 3)
    assert queues[4].notifier is not None
    for _ in range(2):
        store.add_notification(queues[4].notifier.notifier_id, a_notification())
    return store


async def test_a_store_comes_back_from_a_database_as_it_was(url: str) -> None:
    store = a_store()
    told: list[int] = []
    await fill_database(url, store, told.append)
    assert sum(told) == sum(totals_of(store)) == sum(StoreTotals(1, 5, 5, 2))
    assert contents(await read_whole_database(url, SmpMemoryStore())) == contents(store)
    assert await stored(url) == contents(store)  # and a router finds it


async def test_round_trip_over_logs_and_database_gives_the_same_lines(url: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    fill_folder(first, a_store(), no_progress)
    read, report = read_smp_store(first)
    assert (report.skipped, report.broken) == (0, 0)
    await fill_database(url, read, no_progress)
    fill_folder(second, await read_whole_database(url, SmpMemoryStore()), no_progress)
    for log in (STORE_LOG, MESSAGE_LOG, NOTIFICATION_LOG):
        lines = [(folder / log).read_bytes().splitlines() for folder in (first, second)]
        assert lines[0]
        assert sorted(lines[0]) == sorted(lines[1])


def with_direct_notifications(store: SmpMemoryStore) -> SmpMemoryStore:
    """Three records of them."""
    [service], [notifier] = store.services(), store.notifiers_with_notifications()
    store.direct.set_ntf_router(NtfRouterRecord(service.service_id, a_location(), b"key", 17))
    store.direct.set_minimum_priority(notifier, MinimumPriority.OFF)
    store.direct.add_packet(a_packet(a_location(), notifier))
    return store


async def test_what_direct_notifications_add_is_copied_too(url: str, tmp_path: Path) -> None:
    store = with_direct_notifications(a_store())
    assert str(totals_of(store)).endswith(", 2 notifications, 3 records of direct notifications")
    told: list[int] = []
    await fill_database(url, store, told.append)
    assert sum(told) == sum(totals_of(store))
    back = await read_whole_database(url, SmpMemoryStore())
    assert contents(back) == contents(store)
    told.clear()
    fill_folder(tmp_path, back, told.append)
    assert sum(told) == sum(totals_of(store))
    assert contents(read_smp_store(tmp_path)[0]) == contents(store)
    assert await stored(url) == contents(store)


async def test_a_store_without_direct_notifications_gets_no_log_of_them(tmp_path: Path) -> None:
    fill_folder(tmp_path, a_store(), no_progress)
    assert not (tmp_path / DIRECT_LOG).exists()


async def test_records_of_direct_notifications_without_a_queue_are_not_lost_in_silence(url: str) -> None:
    await fill_database(url, a_store(), no_progress)
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO tocsin_smp.minimum_priorities VALUES ($1, 0)", b"nobody's")
    await connection.execute("INSERT INTO tocsin_smp.ntf_routers VALUES ($1, $1, $1, 0)", b"nobody's")
    address = a_location().text(Scheme.NTF).encode()
    await connection.execute(
        "INSERT INTO tocsin_smp.packets VALUES ($1, 0, $2, $1, $1)", b"nobody's", address
    )
    with pytest.raises(StoreError, match="3 rows of the database belong to no queue"):
        await read_whole_database(url, SmpMemoryStore())
    await connection.execute("UPDATE tocsin_smp.packets SET location = 'nowhere'")
    await connection.close()
    with pytest.raises(StoreError, match="address of an NTF router"):
        await read_whole_database(url, SmpMemoryStore())


async def test_a_router_goes_on_with_what_was_copied(url: str) -> None:
    """Messages come behind the copied ones."""
    source = a_store()
    full = next(iter(source.queues_with_messages()))
    await fill_database(url, source, no_progress)
    store, database = await opened(url)
    assert store.write_message(full, a_message(), 3) is None  # still full
    for message in source.messages(full):
        assert store.remove_message(full, message.message_id) == message
    later = a_message()
    store.write_message(full, later, 3)
    await database.close()
    assert (await stored(url))["messages"][full] == (later,)


async def test_many_rows_are_written_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_transfer, "ROWS_PER_STATEMENT", 2)
    store = a_store()
    told: list[int] = []
    await fill_database(url, store, told.append)
    assert max(told) == 2
    assert await stored(url) == contents(store)
    assert change_batch.ROWS_PER_STATEMENT > 2


async def test_a_database_with_a_store_is_refused_and_stays(url: str) -> None:
    store, database = await opened(url)
    store.add_queue(a_queue())
    await database.close()
    before = await stored(url)
    for attempt in (require_empty_database(url), fill_database(url, a_store(), no_progress)):
        with pytest.raises(StoreError, match=r"has a store already \(0 services, 1 queues, 0 messages"):
            await attempt
    assert await stored(url) == before


async def test_a_database_that_a_router_uses_is_neither_written_nor_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_transfer, "LOCK_WAIT", 0.1)
    _, database = await opened(url)
    with pytest.raises(SchemaInUse):
        await fill_database(url, a_store(), no_progress)
    with pytest.raises(SchemaInUse):
        await read_whole_database(url, SmpMemoryStore())
    await database.close()


async def test_a_failure_in_the_middle_leaves_nothing(url: str) -> None:
    def fail(_count: int) -> None:
        raise StoreError("enough")

    with pytest.raises(StoreError, match="enough"):
        await fill_database(url, a_store(), fail)
    await fill_database(url, a_store(), no_progress)


async def test_wrong_counts_undo_everything(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_transfer, "totals_of", lambda _store: StoreTotals(1, 5, 6, 2))
    with pytest.raises(StoreError, match=r"5 messages.* instead of .*6 messages"):
        await fill_database(url, a_store(), no_progress)
    await require_empty_database(url)


async def test_looking_makes_no_schema_and_reading_leaves_the_database_as_it_is(url: str) -> None:
    await require_empty_database(url)
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT to_regclass('tocsin_smp.migrations')") is None
    with pytest.raises(StoreError, match="there is no store in it"):
        await read_whole_database(url, SmpMemoryStore())
    await fill_database(url, a_store(), no_progress)
    opening = await connection.fetchval("SELECT number FROM tocsin_smp.opening")
    await read_whole_database(url, SmpMemoryStore())
    assert await connection.fetchval("SELECT number FROM tocsin_smp.opening") == opening
    await connection.execute("DELETE FROM tocsin_smp.migrations")
    with pytest.raises(StoreError, match="--maintenance` brings it up to date"):
        await read_whole_database(url, SmpMemoryStore())
    await connection.close()


async def test_rows_without_a_queue_are_not_lost_in_silence(url: str) -> None:
    await fill_database(url, a_store(), no_progress)
    connection = await asyncpg.connect(url)
    await connection.execute(
        "INSERT INTO tocsin_smp.messages (recipient_id, position, message_id, sent_at, priority, body) "
        "VALUES ($1, 99, $1, 17, 0, $1)",
        b"nobody's",
    )
    await connection.close()
    with pytest.raises(StoreError, match="1 rows of the database belong to no queue"):
        await read_whole_database(url, SmpMemoryStore())


@pytest.mark.parametrize(
    "log",
    [
        STORE_LOG,
        f"{STORE_LOG}.start",
        MESSAGE_LOG,
        NOTIFICATION_LOG,
        CHANGE_LOG,
        f"{CHANGE_LOG}.3",
        DIRECT_LOG,
    ],
)
def test_a_folder_with_a_store_is_refused_and_stays(tmp_path: Path, log: str) -> None:
    (tmp_path / log).write_bytes(b"something\n")
    with pytest.raises(StoreError, match=rf"has a store already \({log}\)"):
        fill_folder(tmp_path, a_store(), no_progress)
    assert [path.name for path in tmp_path.iterdir()] == [log]


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a folder"):
        fill_folder(tmp_path / "no", a_store(), no_progress)
