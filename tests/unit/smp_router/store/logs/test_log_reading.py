"""Lines that cannot be read, and reading a folder without changing it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tests.unit.smp_router.store.samples import a_message, a_notification, a_notifier, a_queue, a_service
from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import StoreError
from tocsin.smp_router.store.interface import StoreTotals, totals_of
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    STORE_LOG,
)
from tocsin.smp_router.store.logs.store_files import OpenOptions, open_smp_store, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord

NOW = 1_760_000_000.0
SKIP = OpenOptions(skip_broken_lines=True)
BROKEN = b"SECRET of somebody"


async def filled(folder: Path, *, stop: bool) -> list[QueueRecord]:
    """Three queues with a message and a notification each, without a graceful stop if so asked."""
    store, files = open_smp_store(folder, now=NOW)
    queues = [a_queue() for _ in range(3)]
    store.add_service(a_service())
    for queue in queues:
        notified = QueueRecord(
            queue.recipient_id, queue.recipient_keys, queue.dh_secret, queue.sender_id, notifier=a_notifier()
        )
        store.add_queue(notified)
        store.write_message(queue.recipient_id, a_message(), 5)
        assert notified.notifier is not None
        store.add_notification(notified.notifier.notifier_id, a_notification())
    await store.commit()
    if stop:
        await files.close()
    else:
        files._journal.close()
        files._lock.release()
    return list(store.queues())


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put_in_the_middle(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line + b"\n", *lines[1:]]))


@pytest.mark.parametrize(
    ("log", "stop"),
    [(STORE_LOG, True), (MESSAGE_LOG, True), (NOTIFICATION_LOG, True), (CHANGE_LOG, False)],
)
async def test_a_broken_line_in_the_middle_is_refused_or_skipped_and_kept(
    tmp_path: Path, log: str, stop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queues = await filled(tmp_path, stop=stop)
    put_in_the_middle(tmp_path / log, BROKEN)
    with pytest.raises(BadLogLine, match=rf"{log}, line 2: "):
        open_smp_store(tmp_path, now=NOW)

    with caplog.at_level(logging.WARNING):
        store, files = open_smp_store(tmp_path, SKIP, now=NOW)
    assert files.report.broken == 1
    assert f"{log}, line 2: " in caplog.text
    assert "somebody" not in caplog.text
    assert list(store.queues()) == queues
    assert totals_of(store) == StoreTotals(1, 3, 3, 3)
    files._journal.close()  # as kill -9 does
    files._lock.release()
    assert (tmp_path / f"{log}.broken").read_bytes() == BROKEN + b"\n"

    store, files = open_smp_store(tmp_path, now=NOW)  # the logs are in order again
    assert totals_of(store) == StoreTotals(1, 3, 3, 3)
    await files.close()


async def test_broken_lines_of_two_starts_are_all_kept(tmp_path: Path) -> None:
    await filled(tmp_path, stop=True)
    for line in (b"one", b"two"):
        put_in_the_middle(tmp_path / STORE_LOG, line)
        _, files = open_smp_store(tmp_path, SKIP, now=NOW)
        await files.close()
    assert (tmp_path / f"{STORE_LOG}.broken").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("stop", [False, True])
async def test_reading_changes_nothing(tmp_path: Path, stop: bool) -> None:
    queues = await filled(tmp_path, stop=stop)
    for log in (STORE_LOG, MESSAGE_LOG if stop else CHANGE_LOG):
        with (tmp_path / log).open("ab") as file:
            file.write(b"a torn li")
    before = files_in(tmp_path)
    store, report = read_smp_store(tmp_path)
    store.check_indices()
    assert list(store.queues()) == queues
    assert (report.queues, report.messages, report.notifications) == (3, 3, 3)
    assert files_in(tmp_path) == before


async def test_reading_a_folder_of_the_reference_makes_no_files(tmp_path: Path) -> None:
    await filled(tmp_path, stop=True)
    (tmp_path / LOCK).unlink()
    (tmp_path / STORE_LOG).rename(tmp_path / f"{STORE_LOG}.start")  # it crashed while compacting
    (tmp_path / STORE_LOG).write_bytes(b"CREATE rid=")
    before = files_in(tmp_path)
    store, _ = read_smp_store(tmp_path)
    assert totals_of(store) == StoreTotals(1, 3, 3, 3)
    assert files_in(tmp_path) == before


async def test_broken_lines_are_kept_only_if_asked_when_reading(tmp_path: Path) -> None:
    await filled(tmp_path, stop=True)
    put_in_the_middle(tmp_path / STORE_LOG, BROKEN)
    before = files_in(tmp_path)
    with pytest.raises(BadLogLine):
        read_smp_store(tmp_path)
    _, report = read_smp_store(tmp_path, skip_broken_lines=True, keep_broken_lines=False)
    assert report.broken == 1
    assert files_in(tmp_path) == before
    read_smp_store(tmp_path, skip_broken_lines=True)
    assert files_in(tmp_path) == before | {f"{STORE_LOG}.broken": BROKEN + b"\n"}


async def test_a_folder_in_use_is_not_read(tmp_path: Path) -> None:
    _, files = open_smp_store(tmp_path, now=NOW)
    with pytest.raises(StoreError, match="another router uses"):
        read_smp_store(tmp_path)
    await files.close()
    assert isinstance(read_smp_store(tmp_path)[0], SmpMemoryStore)
    shutil.rmtree(tmp_path)
    assert totals_of(read_smp_store(tmp_path)[0]) == StoreTotals(0, 0, 0, 0)
