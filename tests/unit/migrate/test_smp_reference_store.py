"""The reference's own tables of 6.5 and 7.0: filled, read again, and moved by the command in both directions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.doubles.reference_smp import make_reference_tables
from tests.unit.migrate.test_smp_move import Reference, reference, to  # noqa: F401 - a fixture
from tests.unit.smp_router.store.postgres.opened_stores import contents, stored
from tests.unit.smp_router.store.samples import (
    a_link,
    a_message,
    a_notification,
    a_notifier,
    a_queue,
    a_service,
    blocks,
)
from tocsin.cli.main import run
from tocsin.errors import StoreError
from tocsin.migrate.smp_reference_store import (
    fill_reference_store,
    read_reference_store,
    require_empty_reference,
)
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueStatus

pytestmark = pytest.mark.timeout(120)
SCHEMA = "smp_server"
RELEASES = ("6.5", "7.0")


def a_store() -> SmpMemoryStore:
    """With everything that a queue can have."""
    store = SmpMemoryStore()
    receiving, notified = a_service(ServiceRole.MESSAGING), a_service()
    for service in (receiving, notified):
        store.add_service(service)
    plain, linked = a_queue(None), replace(a_queue(QueueMode.CONTACT), link=a_link())
    served = replace(
        a_queue(),
        sender_key=b"k" * 44,
        notifier=a_notifier(notified.service_id),
        service_id=receiving.service_id,
    )
    alone = replace(a_queue(), notifier=a_notifier(), updated_at=1_750_000_000, status=QueueStatus.OFF)
    several = replace(a_queue(), recipient_keys=(b"a" * 44, b"b" * 44))
    blocked = [replace(a_queue(), status=each) for each in (blocks.example(), blocks.example())]
    for queue in (plain, linked, served, alone, several, *blocked):
        assert store.add_queue(queue)
    for body in (b"one", b"", b"three", b"too many"):
        store.write_message(served.recipient_id, a_message(body=body), 3)
    store.write_message(plain.recipient_id, a_message(priority=0), 3)
    assert served.notifier is not None
    store.add_notification(served.notifier.notifier_id, a_notification())
    return store


async def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def ignore(_count: int) -> None:
    """Progress."""


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@pytest.mark.parametrize("release", RELEASES)
async def test_what_was_written_is_read_again(release: str, url: str, tmp_path: Path) -> None:
    await make_reference_tables(url, release)
    store = a_store()
    await fill_reference_store(url, SCHEMA, tmp_path, store, ignore)
    assert contents(await read_reference_store(url, SCHEMA, tmp_path)) == contents(store)
    sizes = "SELECT msg_queue_size, msg_can_write, msg_queue_expire FROM msg_queues WHERE msg_queue_size > 0"
    assert sorted(await rows(url, sizes)) == [(1, True, True), (4, False, True)]
    with pytest.raises(StoreError, match="has a store already"):
        await fill_reference_store(url, SCHEMA, tmp_path, store, ignore)
    if release == "7.0":
        [served] = [queue for queue in store.queues() if queue.service_id is not None]
        assert served.notifier is not None
        expected = {
            (1, ids_hash_bytes(id_hash(each))) for each in (served.recipient_id, served.notifier.notifier_id)
        }
        assert set(await rows(url, "SELECT queue_count, queue_ids_hash FROM services")) == expected


async def test_deleted_queues_and_their_messages_are_left_out(url: str, tmp_path: Path) -> None:
    await make_reference_tables(url, "6.5")
    store = SmpMemoryStore()
    queue = a_queue()
    store.add_queue(queue)
    store.write_message(queue.recipient_id, a_message(), 3)
    await fill_reference_store(url, SCHEMA, tmp_path, store, ignore)
    await rows(url, "UPDATE msg_queues SET deleted_at = 1750000000")
    found = await read_reference_store(url, SCHEMA, tmp_path)
    assert (found.queue_count(), list(found.queues_with_messages())) == (0, [])


async def test_tables_that_cannot_be_used_are_refused_with_the_next_step(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="let its `smp-server` make or update them"):
        await read_reference_store(url, SCHEMA, tmp_path)
    await make_reference_tables(url, "7.0", digest=False)
    with pytest.raises(StoreError, match="CREATE EXTENSION pgcrypto SCHEMA public"):
        await require_empty_reference(url, SCHEMA)
    await rows(url, "INSERT INTO services VALUES ('a', 'X', 'b', 'c', 1)")
    with pytest.raises(StoreError, match="cannot be read"):
        await read_reference_store(url, SCHEMA, tmp_path)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("in_database", [False, True])
async def test_the_command_moves_tables_here_and_back(
    release: str,
    in_database: bool,
    reference: Reference,  # noqa: F811
    server_url: str,
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await make_reference_tables(url, release)
    source, _ = read_smp_store(reference.data)
    for log in reference.data.glob("*.log"):
        log.unlink()
    await fill_reference_store(url, SCHEMA, reference.data, source, ignore)
    ini = reference.config / "smp-server.ini"
    tables = f"store_queues: database\ndb_connection: {url}\nstore_messages: database"
    ini.write_text(ini.read_text().replace("store_queues: memory\nstore_messages: memory", tables))
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert await asyncio.to_thread(run, reference.arguments()) == 1
    assert "name new folders with --to" in capsys.readouterr().err
    chosen = ["--database", url] if in_database else []
    assert await asyncio.to_thread(run, reference.arguments(*to(ours), *chosen)) == 0
    shown = capsys.readouterr().out
    assert "a reference before 7.0: 3 queues" in shown or "reference 7.0 (migration" in shown
    assert "verified: same identity, 0 services, 3 queues, 3 messages, 0 notifications" in shown
    assert url not in shown
    found = await stored(url) if in_database else contents(read_smp_store(ours / "var")[0])
    assert found == contents(source)
    await rows(url, "TRUNCATE services, msg_queues, messages")
    arguments = ["migrate", "smp", "--back", "--from", str(ours / "etc"), "--database", url]
    assert await asyncio.to_thread(run, arguments) == 1
    assert "--database needs --to and --to-data" in capsys.readouterr().err
    assert await asyncio.to_thread(run, [*arguments, *to(back)]) == 0
    assert "3 queues, 3 messages, 0 notifications in the reference's store" in capsys.readouterr().out
    assert contents(await read_reference_store(url, SCHEMA, back / "var")) == contents(source)
    written = (back / "etc" / "smp-server.ini").read_text()
    assert written.count("store_queues: database") == written.count("store_messages: database") == 1
    assert f"db_connection: {url}" in written
