"""Changes of messages that another program has overtaken, and messages that are not to be kept."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.smp_router.store.samples import a_message, a_notification, a_notifier, a_queue
from tocsin.smp_router.store.logs import snapshots
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_BASE,
    CHANGE_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    STORE_LOG,
)
from tocsin.smp_router.store.logs.message_log import MessageAdded
from tocsin.smp_router.store.logs.snapshots import SmpSnapshot
from tocsin.smp_router.store.logs.store_files import (
    OpenOptions,
    StaleChanges,
    StoreFiles,
    open_smp_store,
    read_smp_store,
)
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord, StoredMessage

NOW = 1_760_000_000.0
SET_ASIDE = OpenOptions(set_aside_stale_changes=True)
NOT_KEPT = OpenOptions(keep_messages=False)


def abandon(files: StoreFiles) -> None:
    """What kill -9 leaves behind."""
    files._journal.close()
    files._lock.release()


def set_aside(folder: Path, name: str) -> Path:
    """The one file that was kept under another name."""
    [aside] = folder.glob(f"{name}.*Z")
    return aside


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def killed(folder: Path) -> tuple[QueueRecord, list[StoredMessage]]:
    """A queue whose first message is in the snapshot, and whose second one is in the log of changes."""
    store, files = open_smp_store(folder, now=NOW)
    queue, messages = a_queue(), [a_message(), a_message()]
    store.add_queue(queue)
    store.write_message(queue.recipient_id, messages[0], 5)
    await store.commit()
    await files.save()
    store.write_message(queue.recipient_id, messages[1], 5)
    await store.commit()
    abandon(files)
    return queue, messages


def run_reference(folder: Path, queue: QueueRecord, *messages: StoredMessage) -> None:
    """It reads the snapshot, knows nothing of the changes, and leaves these messages."""
    (folder / MESSAGE_LOG).rename(folder / f"{MESSAGE_LOG}.bak")
    lines = [MessageAdded(queue.recipient_id, message).encode() + b"\n" for message in messages]
    (folder / MESSAGE_LOG).write_bytes(b"".join(lines))


async def test_changes_are_applied_if_nobody_else_ran(tmp_path: Path) -> None:
    queue, messages = await killed(tmp_path)
    assert (tmp_path / CHANGE_BASE).exists()
    store, files = open_smp_store(tmp_path, now=NOW)
    assert store.messages(queue.recipient_id) == tuple(messages)
    await files.close()
    assert not (tmp_path / CHANGE_BASE).exists()


@pytest.mark.parametrize("left", [0, 1])
async def test_changes_from_before_another_program_ran_are_refused(tmp_path: Path, left: int) -> None:
    queue, _ = await killed(tmp_path)
    run_reference(tmp_path, queue, *[a_message()][:left])
    before = files_in(tmp_path)
    with pytest.raises(StaleChanges, match=f"{CHANGE_LOG} has changes since snapshots that are gone"):
        open_smp_store(tmp_path, now=NOW)
    with pytest.raises(StaleChanges):
        read_smp_store(tmp_path)
    assert files_in(tmp_path) == before


async def test_a_part_that_a_crash_left_does_not_bring_back_what_the_other_program_delivered(
    tmp_path: Path,
) -> None:
    """The crash came after the new snapshot and before the changes that are in it were removed."""
    queue, messages = await killed(tmp_path)
    part = (tmp_path / CHANGE_LOG).read_bytes()
    _, files = open_smp_store(tmp_path, now=NOW)
    abandon(files)
    (tmp_path / f"{CHANGE_LOG}.1").write_bytes(part)
    store, files = open_smp_store(tmp_path, now=NOW)
    assert store.messages(queue.recipient_id) == tuple(messages)
    abandon(files)
    (tmp_path / f"{CHANGE_LOG}.1").write_bytes(part)
    run_reference(tmp_path, queue)  # both were received
    with pytest.raises(StaleChanges):
        open_smp_store(tmp_path, now=NOW)


async def test_stale_changes_are_set_aside_if_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue, _ = await killed(tmp_path)
    changes = (tmp_path / CHANGE_LOG).read_bytes()
    newer = a_message()
    run_reference(tmp_path, queue, newer)
    with caplog.at_level(logging.WARNING):
        store, files = open_smp_store(tmp_path, SET_ASIDE, now=NOW)
    assert store.messages(queue.recipient_id) == (newer,)
    aside = set_aside(tmp_path, CHANGE_LOG)
    assert aside.read_bytes() == changes
    assert aside.name in caplog.text
    await files.close()
    store, files = open_smp_store(tmp_path, now=NOW)
    assert store.messages(queue.recipient_id) == (newer,)
    await files.close()


async def test_after_a_graceful_stop_the_reference_may_do_what_it_likes(tmp_path: Path) -> None:
    queue, _ = await killed(tmp_path)
    _, files = open_smp_store(tmp_path, now=NOW)
    await files.close()
    newer = a_message()
    run_reference(tmp_path, queue, newer)
    store, files = open_smp_store(tmp_path, now=NOW)
    assert store.messages(queue.recipient_id) == (newer,)
    await files.close()


async def test_messages_that_are_not_kept_are_neither_restored_nor_written(tmp_path: Path) -> None:
    store, files = open_smp_store(tmp_path, now=NOW)
    notifier = a_notifier()
    queue = a_queue()
    queue = QueueRecord(
        queue.recipient_id, queue.recipient_keys, queue.dh_secret, queue.sender_id, notifier=notifier
    )
    store.add_queue(queue)

    def use(store: SmpMemoryStore) -> None:
        assert store.write_message(queue.recipient_id, a_message(), 5) is not None
        store.add_notification(notifier.notifier_id, a_notification())

    use(store)
    await store.commit()
    abandon(files)  # one in the log of changes
    _, files = open_smp_store(tmp_path, now=NOW)
    await files.close()  # … and now in the snapshot

    store, files = open_smp_store(tmp_path, NOT_KEPT, now=NOW)
    assert list(store.queues()) == [queue]
    assert (files.report.messages, files.report.notifications) == (0, 0)
    assert store.message_count(queue.recipient_id) == 0
    for name in (MESSAGE_LOG, NOTIFICATION_LOG):
        assert len(set_aside(tmp_path, name).read_bytes().splitlines()) == 1
    use(store)
    assert not store.uncommitted
    await store.commit()
    assert await files.maintain(limit=0) is True
    await files.save()
    await files.close()
    names = {name for name in files_in(tmp_path) if not name.endswith("Z")}
    assert names == {STORE_LOG, LOCK}

    store, files = open_smp_store(tmp_path, now=NOW)  # kept again: none of the old ones come back
    assert store.message_count(queue.recipient_id) == 0
    use(store)
    await files.close()
    store, files = open_smp_store(tmp_path, now=NOW)
    assert store.message_count(queue.recipient_id) == 1
    await files.close()


async def test_changes_that_are_not_to_be_kept_are_set_aside_stale_or_not(tmp_path: Path) -> None:
    queue, _ = await killed(tmp_path)
    run_reference(tmp_path, queue)
    store, files = open_smp_store(tmp_path, NOT_KEPT, now=NOW)
    assert store.message_count(queue.recipient_id) == 0
    await files.close()
    assert set_aside(tmp_path, CHANGE_LOG).exists()
    names = {name for name in files_in(tmp_path) if not name.endswith("Z")}
    assert names == {
        STORE_LOG,
        LOCK,
        MESSAGE_LOG,
        NOTIFICATION_LOG,
        f"{MESSAGE_LOG}.bak",
    }  # all of them empty


async def test_queues_survive_a_kill_also_if_messages_are_not_kept(tmp_path: Path) -> None:
    store, files = open_smp_store(tmp_path, NOT_KEPT, now=NOW)
    queue = a_queue()
    store.add_queue(queue)
    await store.commit()
    abandon(files)
    store, files = open_smp_store(tmp_path, NOT_KEPT, now=NOW)
    assert list(store.queues()) == [queue]
    await files.close()


async def test_other_tasks_get_turns_while_a_snapshot_is_taken_and_their_changes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "QUEUES_AT_ONCE", 1)
    store, files = open_smp_store(tmp_path, now=NOW)
    queues = [replace(a_queue(), notifier=a_notifier()) for _ in range(20)]
    for queue in queues:
        store.add_queue(queue)
        assert queue.notifier is not None
        for _ in range(2):
            store.write_message(queue.recipient_id, a_message(), 10)
            store.add_notification(queue.notifier.notifier_id, a_notification())
    await store.commit()
    turns = 0

    async def change() -> None:
        """Every queue gets a message and loses one, before or after it is copied."""
        nonlocal turns
        for queue in reversed(queues):
            assert queue.notifier is not None
            store.write_message(queue.recipient_id, a_message(body=b"new"), 10)
            head = store.head_message(queue.recipient_id)
            assert head is not None
            store.remove_message(queue.recipient_id, head.message_id)
            [first, *_] = store.notifications(queue.notifier.notifier_id)
            store.remove_notification(queue.notifier.notifier_id, first.nonce)
            store.add_notification(queue.notifier.notifier_id, a_notification())
            turns += 1
            await asyncio.sleep(0)

    taken = SmpSnapshot.taken_slowly

    async def watched(changing: SmpMemoryStore) -> SmpSnapshot:
        task = asyncio.create_task(change())
        snapshot = await taken(changing)
        assert turns == len(queues), "nobody had to wait for the end"
        await task
        return snapshot

    monkeypatch.setattr(SmpSnapshot, "taken_slowly", watched)
    await files.save()
    await store.commit()
    expected = [(store.messages(q.recipient_id), q.notifier) for q in queues]
    notified = {n: set(store.notifications(n)) for n in store.notifiers_with_notifications()}
    abandon(files)
    store, files = open_smp_store(tmp_path, now=NOW)
    assert [(store.messages(q.recipient_id), q.notifier) for q in queues] == expected
    assert {n: set(store.notifications(n)) for n in store.notifiers_with_notifications()} == notified
    abandon(files)
