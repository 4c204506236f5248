"""A store log that has grown is made compact while it is in use: nothing is lost, and nobody waits."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.failing_disk import FailingDisk
from tests.unit.smp_router.store.logs.test_store_files import abandon, contents, opened
from tests.unit.smp_router.store.samples import a_queue
from tocsin.durable import group_commit
from tocsin.durable.log_files import start_of
from tocsin.protocol.smp.queue_modes import LinkData
from tocsin.smp_router.store.logs.log_reading import STORE_LOG
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueLink


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "LEAST_BYTES", 20_000)


def set_link(store: SmpMemoryStore, recipient_id: bytes, number: int) -> None:
    queue = store.queue_by_recipient(recipient_id)
    assert queue is not None
    link = QueueLink(b"link", LinkData(b"fixed", b"%d" % number * 100))
    assert store.update_queue(replace(queue, link=link))


async def test_repeated_changes_of_one_queue_do_not_fill_the_disk(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    queue = a_queue()
    store.add_queue(queue)
    largest = 0
    for number in range(2_000):
        set_link(store, queue.recipient_id, number)
        if number % 20 == 0:
            await store.commit()
            await files.maintain()
            largest = max(largest, (tmp_path / STORE_LOG).stat().st_size)
    await store.commit()
    assert largest < 40_000  # what was written is more than ten times that
    assert [name for name in os.listdir(tmp_path) if STORE_LOG in name] == [STORE_LOG]
    before = contents(store)
    abandon(files)
    store, files = opened(tmp_path)
    assert contents(store) == before
    abandon(files)


async def test_changes_made_meanwhile_are_kept(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    queues = [a_queue() for _ in range(20)]
    for queue in queues:
        store.add_queue(queue)
    for number in range(100):
        set_link(store, queues[0].recipient_id, number)
    await store.commit()
    size = (tmp_path / STORE_LOG).stat().st_size
    compacting = asyncio.create_task(files.maintain())
    changes = 0
    while not compacting.done():
        set_link(store, queues[0].recipient_id, 1000 + changes)
        new = a_queue()
        store.add_queue(new)
        if changes < 10:
            store.delete_queue(queues[changes + 5].recipient_id)
        changes += 1
        await store.commit()
    await compacting
    assert changes > 3
    assert (tmp_path / STORE_LOG).stat().st_size < size
    set_link(store, queues[0].recipient_id, 5000)
    await store.commit()
    before = contents(store)
    abandon(files)
    store, files = opened(tmp_path)
    assert contents(store) == before
    assert files.report.skipped == 0
    abandon(files)


async def test_a_disk_without_room_for_the_draft_leaves_the_log_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, files = opened(tmp_path)
    queue = a_queue()
    store.add_queue(queue)
    for number in range(100):
        set_link(store, queue.recipient_id, number)
    await store.commit()
    disk = FailingDisk(tmp_path, monkeypatch)
    real_open = os.open

    def no_room(path: str | Path, flags: int, mode: int = 0o777, **named: int) -> int:
        """For the rest of the draft."""
        if os.fspath(path).endswith(".new") and flags & os.O_APPEND:
            disk._raise()
        return real_open(path, flags, mode, **named)

    monkeypatch.setattr(os, "open", no_room)
    await files.maintain()
    assert files._journal.trouble is None
    assert not (tmp_path / f"{STORE_LOG}.new").exists()
    set_link(store, queue.recipient_id, 7)
    await store.commit()
    monkeypatch.undo()
    before = contents(store)
    abandon(files)
    assert not start_of(tmp_path / STORE_LOG).exists()
    store, files = opened(tmp_path)
    assert contents(store) == before
    abandon(files)
