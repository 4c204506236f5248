"""The store's folder: smp-tests.md 16 (G1 to G11) and R3, torn lines, crashes between any two steps, refusals."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.smp_router.store import samples
from tocsin.durable import log_files
from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.smp_router.store.logs import store_log_changes as lines
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    STORE_LOG,
)
from tocsin.smp_router.store.logs.store_files import OpenOptions, StoreFiles, open_smp_store
from tocsin.smp_router.store.logs.store_log import (
    AddServiceLine,
    CreateQueueLine,
    DeleteQueueLine,
    StoreLogRecord,
)
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord, QueueStatus

NOW: Final = 1_760_000_000
Contents = dict[bytes, object]


def opened(folder: Path, **options: Any) -> tuple[SmpMemoryStore, StoreFiles]:
    store, files = open_smp_store(folder, OpenOptions(**options), now=NOW)
    store.check_indices()
    return store, files


def contents(store: SmpMemoryStore) -> Contents:
    """Everything, by the ids it belongs to."""
    found: Contents = {
        queue.recipient_id: (queue, store.messages(queue.recipient_id)) for queue in store.queues()
    }
    found |= {notifier: store.notifications(notifier) for notifier in store.notifiers_with_notifications()}
    return found | {service.service_id: service for service in store.services()}


def write_log(path: Path, *records: StoreLogRecord) -> None:
    path.write_bytes(b"".join(record.encode() + b"\n" for record in records))


def in_folder(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def g_cases(mode: QueueMode) -> Iterator[tuple[str, list[StoreLogRecord], list[StoreLogRecord]]]:
    queue, link, notifier, service = (
        samples.a_queue(mode),
        samples.a_link(),
        samples.a_notifier(),
        samples.a_service(),
    )
    rid, create = queue.recipient_id, CreateQueueLine(queue)
    linked = CreateQueueLine(replace(queue, link=link))
    notified = CreateQueueLine(replace(queue, notifier=notifier))
    served = replace(queue, notifier=replace(notifier, service_id=service.service_id))
    associate = lines.SetQueueServiceLine(rid, ServiceRole.NOTIFIER, service.service_id)
    blocked = Blocked(BlockReason.CONTENT)
    yield "G1", [create], [create]
    yield "G2", [linked], [linked]
    yield "G3", [create, lines.SetLinkLine(rid, link)], [linked]
    yield "G4", [linked, lines.DeleteLinkLine(rid)], [create]
    yield (
        "G5",
        [create, lines.SecureQueueLine(rid, b"key")],
        [CreateQueueLine(replace(queue, sender_key=b"key"))],
    )
    yield "G6", [create, DeleteQueueLine(rid)], []
    yield "G7", [create, lines.SetNotifierLine(rid, notifier)], [notified]
    yield (
        "G8",
        [create, lines.SetNotifierLine(rid, notifier), AddServiceLine(service), associate],
        [AddServiceLine(service), CreateQueueLine(served)],
    )
    yield "G9", [create, lines.SetNotifierLine(rid, notifier), lines.DeleteNotifierLine(rid)], [create]
    yield (
        "G10",
        [create, lines.SetTimeLine(rid, 86_400)],
        [CreateQueueLine(replace(queue, updated_at=86_400))],
    )
    yield (
        "G11",
        [create, lines.ChangeRecipientKeysLine(rid, (b"k1", b"k2"))],
        [CreateQueueLine(replace(queue, recipient_keys=(b"k1", b"k2")))],
    )
    yield (
        "suspended",
        [create, lines.SuspendQueueLine(rid)],
        [CreateQueueLine(replace(queue, status=QueueStatus.OFF))],
    )
    yield (
        "blocked",
        [create, lines.BlockQueueLine(rid, blocked)],
        [CreateQueueLine(replace(queue, status=blocked))],
    )
    yield "unblocked", [create, lines.BlockQueueLine(rid, blocked), lines.UnblockQueueLine(rid)], [create]
    yield (
        "recipient's service",
        [
            AddServiceLine(service),
            create,
            lines.SetQueueServiceLine(rid, ServiceRole.MESSAGING, service.service_id),
        ],
        [AddServiceLine(service), CreateQueueLine(replace(queue, service_id=service.service_id))],
    )
    yield (
        "service removed",
        [
            AddServiceLine(service),
            CreateQueueLine(served),
            lines.SetQueueServiceLine(rid, ServiceRole.NOTIFIER, None),
        ],
        [AddServiceLine(service), notified],
    )


G_CASES: Final = [
    pytest.param(log, compact, id=f"{name}-{mode.name}")
    for mode in QueueMode
    for name, log, compact in g_cases(mode)
]


@pytest.mark.parametrize(("log", "compact"), G_CASES)
async def test_store_log_is_compacted(
    tmp_path: Path, log: list[StoreLogRecord], compact: list[StoreLogRecord]
) -> None:
    write_log(tmp_path / STORE_LOG, *log)
    expected = [record.encode() for record in compact]
    states = []
    for _ in range(3):
        store, files = opened(tmp_path)
        assert lines_of(tmp_path / STORE_LOG) == expected
        states.append(contents(store))
        await files.close()
    assert states[0] == states[1] == states[2]


async def test_the_log_as_it_was_is_kept_beside_the_compacted_one(tmp_path: Path) -> None:
    queue = samples.a_queue()
    write_log(tmp_path / STORE_LOG, CreateQueueLine(queue), lines.SecureQueueLine(queue.recipient_id, b"key"))
    before = (tmp_path / STORE_LOG).read_bytes()
    _, files = opened(tmp_path)
    await files.close()
    [backup] = in_folder(tmp_path, f"{STORE_LOG}.*")
    assert backup.name == f"{STORE_LOG}.2025-10-09T08:53:20.000000Z"
    assert backup.read_bytes() == before


async def test_old_backups_are_removed_as_the_reference_does(tmp_path: Path) -> None:
    queue = samples.a_queue()
    write_log(tmp_path / STORE_LOG, CreateQueueLine(queue), lines.SecureQueueLine(queue.recipient_id, b"key"))
    days = ["2025-08-01", "2025-08-02", "2025-10-01", "2025-10-02", "2025-10-03", "2025-10-09"]
    for day in days:
        (tmp_path / f"{STORE_LOG}.{day}T00:00:00Z").touch()
    (tmp_path / f"{STORE_LOG}.not-a-timeZ").touch()
    _, files = opened(tmp_path)
    await files.close()
    left = {path.name.removeprefix(f"{STORE_LOG}.")[:10] for path in in_folder(tmp_path, f"{STORE_LOG}.*")}
    assert left == {*days[2:], "not-a-time"}


async def filled(folder: Path) -> Contents:
    """A store with something of everything, committed but not closed gracefully: the folder of a killed router."""
    store, files = opened(folder)
    service = samples.a_service()
    store.add_service(service)
    for number in range(3):
        queue = replace(
            samples.a_queue(), notifier=samples.a_notifier(service.service_id), link=samples.a_link()
        )
        assert store.add_queue(queue)
        assert store.update_queue(replace(queue, sender_key=samples.some_bytes(44), updated_at=86_400))
        for sent in range(number + 3):
            store.write_message(queue.recipient_id, samples.a_message(NOW + sent), samples.QUOTA)
        assert queue.notifier is not None
        for sent in range(number + 1):
            store.add_notification(queue.notifier.notifier_id, samples.a_notification(NOW + sent))
        head = store.head_message(queue.recipient_id)
        assert head is not None
        store.remove_message(queue.recipient_id, head.message_id)
        store.remove_notification(
            queue.notifier.notifier_id, store.notifications(queue.notifier.notifier_id)[0].nonce
        )
        await store.commit()
    gone = samples.a_queue()
    assert store.add_queue(gone)
    store.write_message(gone.recipient_id, samples.a_message(), samples.QUOTA)
    store.delete_queue(gone.recipient_id)
    await store.commit()
    abandon(files)
    return contents(store)


async def change_more(store: SmpMemoryStore) -> None:
    """Adds and removes messages and notifications, and commits."""
    for queue in list(store.queues()):
        assert queue.notifier is not None
        head = store.head_message(queue.recipient_id)
        assert head is not None
        store.remove_message(queue.recipient_id, head.message_id)
        store.write_message(queue.recipient_id, samples.a_message(), 128)
        for notification in store.notifications(queue.notifier.notifier_id)[:1]:
            store.remove_notification(queue.notifier.notifier_id, notification.nonce)
        store.add_notification(queue.notifier.notifier_id, samples.a_notification())
    await store.commit()


def abandon(files: StoreFiles) -> None:
    """What is left of a process that was killed: nothing but the files."""
    files._journal.close()
    files._lock.release()


async def test_everything_committed_survives_a_crash(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    for _ in range(2):
        store, files = opened(tmp_path)
        assert contents(store) == before
        abandon(files)


async def test_everything_survives_a_graceful_stop_without_our_own_files(tmp_path: Path) -> None:
    before = await filled(tmp_path)
    _, files = opened(tmp_path)
    await files.close()
    await files.close()  # once more does nothing
    names = {path.name for path in in_folder(tmp_path) if not path.name.startswith(f"{STORE_LOG}.")}
    assert names == {STORE_LOG, MESSAGE_LOG, NOTIFICATION_LOG, LOCK}
    assert {path.stat().st_mode & 0o777 for path in in_folder(tmp_path)} == {0o600}
    store, files = opened(tmp_path)
    assert contents(store) == before
    await files.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.commit()


async def test_a_full_queue_stays_full_across_restarts(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    queue = samples.a_queue()
    store.add_queue(queue)
    for _ in range(samples.QUOTA + 1):
        store.write_message(queue.recipient_id, samples.a_message(), samples.QUOTA)
    await files.close()
    store, files = opened(tmp_path)
    assert store.message_count(queue.recipient_id) == samples.QUOTA + 1
    assert store.write_message(queue.recipient_id, samples.a_message(), samples.QUOTA) is None
    assert store.message_count(queue.recipient_id) == samples.QUOTA + 1
    await files.close()


async def test_r3_old_messages_expire_at_start(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    queue = samples.a_queue()
    store.add_queue(queue)
    store.update_queue(replace(queue, sender_key=b"key"))
    for sent_at in (NOW - 5, NOW - 4, NOW - 1, NOW):
        store.write_message(queue.recipient_id, samples.a_message(sent_at), 128)
    await files.close()
    assert len(lines_of(tmp_path / STORE_LOG)) == 2
    first = (tmp_path / MESSAGE_LOG).read_bytes()
    assert len(first.splitlines()) == 4
    _, files = opened(tmp_path, message_ttl=86_400)
    await files.close()
    assert len(lines_of(tmp_path / STORE_LOG)) == 1
    assert (tmp_path / MESSAGE_LOG).read_bytes() == first
    _, files = opened(tmp_path, message_ttl=2)
    assert files.report.expired_messages == 2
    assert files.report.messages == 2
    await files.close()
    assert len(lines_of(tmp_path / STORE_LOG)) == 1
    assert lines_of(tmp_path / MESSAGE_LOG) == first.splitlines()[2:]


async def test_old_notifications_expire_at_start(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    notifier = samples.a_notifier()
    store.add_queue(replace(samples.a_queue(), notifier=notifier))
    old, young = samples.a_notification(NOW - 10), samples.a_notification(NOW)
    store.add_notification(notifier.notifier_id, old)
    store.add_notification(notifier.notifier_id, young)
    await files.close()
    store, files = opened(tmp_path, notification_ttl=5)
    assert files.report.expired_notifications == 1
    assert store.notifications(notifier.notifier_id) == (young,)
    await files.close()


async def test_save_leaves_a_snapshot_and_a_short_changes_log(tmp_path: Path) -> None:
    await filled(tmp_path)
    store, files = opened(tmp_path)
    rid = next(iter(store.queues_with_messages()))
    for _ in range(2):
        store.write_message(rid, samples.a_message(), 128)
    assert await files.maintain(limit=1 << 30) is False
    await store.commit()
    assert await files.maintain(limit=1) is True
    assert lines_of(tmp_path / CHANGE_LOG) == []
    store.write_message(rid, samples.a_message(), 128)
    await store.commit()
    before = contents(store)
    abandon(files)
    store, files = opened(tmp_path)
    assert contents(store) == before
    await files.close()


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("step", range(45))
@pytest.mark.parametrize("doing", ["open", "save", "close"])
async def test_nothing_is_lost_or_returns_when_a_crash_comes_between_any_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, doing: str
) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    folder.mkdir()
    before = await filled(folder)
    done = 0

    def maybe_crash(real: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **named: object) -> object:
            nonlocal done
            done += 1
            if done > step:
                raise Crash
            return real(*args, **named)

        return run

    files = None
    if doing != "open":
        store, files = opened(folder)
        await change_more(store)
        before = contents(store)
    with monkeypatch.context() as patch, suppress(Crash):
        for name in ("open", "replace", "fsync", "ftruncate"):
            patch.setattr(os, name, maybe_crash(getattr(os, name)))
        patch.setattr(Path, "unlink", maybe_crash(Path.unlink))
        if files is None:
            files = opened(folder)[1]
        elif doing == "save":
            await files.save()
        else:
            await files.close()
    if files is not None and doing != "close":
        abandon(files)
    shutil.copytree(folder, copy)
    store, copied = opened(copy)
    assert contents(store) == before
    abandon(copied)


async def test_reference_crash_while_compacting_is_recovered_from(tmp_path: Path) -> None:
    queues = [samples.a_queue() for _ in range(3)]
    write_log(tmp_path / f"{STORE_LOG}.start", *map(CreateQueueLine, queues))
    (tmp_path / STORE_LOG).write_bytes(CreateQueueLine(queues[0]).encode()[:40])
    store, files = opened(tmp_path)
    assert list(store.queues()) == queues
    assert not (tmp_path / f"{STORE_LOG}.start").exists()
    assert (tmp_path / f"{STORE_LOG}.bak").exists()
    await files.close()


async def test_a_torn_last_line_is_cut_wherever_it_was_torn(tmp_path: Path) -> None:
    queue = replace(samples.a_queue(), notifier=samples.a_notifier())
    whole = CreateQueueLine(queue).encode() + b"\n"
    torn = CreateQueueLine(samples.a_queue()).encode()
    for length in range(len(torn) + 1):
        (tmp_path / STORE_LOG).write_bytes(whole + torn[:length])
        store, files = opened(tmp_path)
        assert list(store.queues()) == [queue]
        assert files.report.torn_bytes == length
        abandon(files)
        assert (tmp_path / STORE_LOG).read_bytes() == whole


@pytest.mark.parametrize("log", [STORE_LOG, CHANGE_LOG])
async def test_a_log_cut_at_any_byte_keeps_the_lines_before_the_cut(tmp_path: Path, log: str) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    await filled(whole)
    written = (whole / log).read_bytes()
    for cut in range(0, len(written), 7):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / log).write_bytes(written[:cut])
        _, files = opened(folder)
        assert files.report.torn_bytes == cut - (written[:cut].rfind(b"\n") + 1)
        abandon(files)


def test_a_torn_line_longer_than_the_read_buffer_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"line\n" + b"x" * (3 << 20))
    assert log_files.cut_torn_line(path) == 3 << 20
    assert path.read_bytes() == b"line\n"
    path.write_bytes(b"x" * (3 << 20))
    assert log_files.cut_torn_line(path) == 3 << 20
    assert path.read_bytes() == b""


@pytest.mark.parametrize("log", [STORE_LOG, MESSAGE_LOG, NOTIFICATION_LOG, CHANGE_LOG])
def test_broken_line_is_named_by_file_and_number(tmp_path: Path, log: str) -> None:
    (tmp_path / log).write_bytes(b"SECRET of somebody\n")
    with pytest.raises(BadLogLine, match=rf"{log}, line 1: ") as raised:
        opened(tmp_path)
    assert "somebody" not in str(raised.value)
    assert (tmp_path / log).read_bytes() == b"SECRET of somebody\n"


async def test_records_of_unknown_queues_are_skipped_and_counted(tmp_path: Path) -> None:
    queue = samples.a_queue()
    write_log(
        tmp_path / STORE_LOG,
        CreateQueueLine(queue),
        CreateQueueLine(queue),
        DeleteQueueLine(b"unknown"),
        lines.SecureQueueLine(b"unknown", b"key"),
        lines.SetQueueServiceLine(queue.recipient_id, ServiceRole.NOTIFIER, b"srv"),
    )
    (tmp_path / MESSAGE_LOG).write_bytes(b"v3 cnJy bWlk 17 quota\n")
    (tmp_path / NOTIFICATION_LOG).write_bytes(b"v1 bnRm bWlk 17 bm9u bWV0\n")
    store, files = opened(tmp_path)
    assert list(store.queues()) == [queue]
    assert files.report.skipped == 5
    await files.close()


async def test_two_stores_on_one_folder_are_refused(tmp_path: Path) -> None:
    _, files = opened(tmp_path)
    with pytest.raises(StoreError, match="another router uses"):
        opened(tmp_path)
    await files.close()
    _, files = opened(tmp_path)
    await files.close()


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(StoreError, match=str(folder)):
            opened(folder)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_file_that_cannot_grow_makes_commit_fail_but_loses_nothing(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    kept: QueueRecord = samples.a_queue()
    store.add_queue(kept)
    await store.commit()
    with files_no_larger_than((tmp_path / STORE_LOG).stat().st_size + 30):
        files._journal._patience = 0.0  # type: ignore[misc]
        store.add_queue(samples.a_queue())
        with pytest.raises(StoreUnavailable, match=STORE_LOG):
            await store.commit()
        with pytest.raises(StoreUnavailable, match=STORE_LOG):
            await store.commit()
        with pytest.raises(StoreUnavailable, match=STORE_LOG):
            await files.close()
    store, files = opened(tmp_path)
    assert files.report.torn_bytes == 30
    assert list(store.queues()) == [kept]
    await files.close()
