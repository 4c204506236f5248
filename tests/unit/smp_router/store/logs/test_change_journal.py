"""Group commit: who waits for which write, and what a failed write means."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.failing_disk import FailingDisk
from tocsin.durable.log_files import AppendOnlyFile
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.smp_router.store.logs.change_journal import ChangeJournal
from tocsin.smp_router.store.logs.message_log import MessageRemoved
from tocsin.smp_router.store.logs.store_log import DeleteQueueLine


class HeldFile(AppendOnlyFile):
    """A log whose writes wait until the test lets them go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes: list[bytes] = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def append(self, lines: bytes) -> None:
        self.begun.release()
        self.go_on.acquire()
        self.writes.append(lines)
        super().append(lines)


@pytest.fixture
def queue_log(tmp_path: Path) -> HeldFile:
    return HeldFile(tmp_path / "queues")


@pytest.fixture
def journal(queue_log: HeldFile, tmp_path: Path) -> Iterator[ChangeJournal]:
    journal = ChangeJournal(queue_log, AppendOnlyFile(tmp_path / "changes"))
    yield journal
    for _ in range(10):
        queue_log.go_on.release()
    journal.close()


async def until_begun(log: HeldFile) -> None:
    await asyncio.to_thread(log.begun.acquire)


async def test_commit_without_changes_does_not_wait(journal: ChangeJournal) -> None:
    await journal.commit()


async def test_those_who_wait_during_a_write_share_the_next(
    journal: ChangeJournal, queue_log: HeldFile
) -> None:
    journal.append(DeleteQueueLine(b"one"))
    first = asyncio.ensure_future(journal.commit())
    await until_begun(queue_log)
    later = []
    for name in (b"two", b"ree"):
        journal.append(DeleteQueueLine(name))
        later.append(asyncio.ensure_future(journal.commit()))
    queue_log.go_on.release()
    await first
    assert not any(one.done() for one in later)
    queue_log.go_on.release()
    await asyncio.gather(*later)
    assert queue_log.writes == [b"DELETE b25l\n", b"DELETE dHdv\nDELETE cmVl\n"]


async def test_a_cancelled_committer_does_not_stop_the_write(
    journal: ChangeJournal, queue_log: HeldFile
) -> None:
    journal.append(DeleteQueueLine(b"one"))
    gone, stays = asyncio.ensure_future(journal.commit()), asyncio.ensure_future(journal.commit())
    await until_begun(queue_log)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    queue_log.go_on.release()
    await stays
    assert queue_log.writes == [b"DELETE b25l\n"]


async def test_each_change_goes_to_its_log(tmp_path: Path) -> None:
    journal = ChangeJournal(AppendOnlyFile(tmp_path / "queues"), AppendOnlyFile(tmp_path / "changes"))
    journal.append(MessageRemoved(b"rrr", b"mid"))
    journal.append(DeleteQueueLine(b"rrr"))
    await journal.commit()
    journal.close()
    assert (tmp_path / "queues").read_bytes() == b"DELETE cnJy\n"
    assert (tmp_path / "changes").read_bytes() == b"R cnJy bWlk\n"
    assert (tmp_path / "queues").stat().st_mode & 0o777 == 0o600


async def test_a_write_that_failed_is_repeated_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ChangeJournal(AppendOnlyFile(tmp_path / "queues"), AppendOnlyFile(tmp_path / "changes"))
    journal.append(DeleteQueueLine(b"one"))
    await journal.commit()
    journal._patience = 0.0  # type: ignore[misc]
    disk = FailingDisk(tmp_path, monkeypatch)
    disk.fill(["fdatasync"])
    journal.append(DeleteQueueLine(b"two"))
    journal.append(MessageRemoved(b"rrr", b"mid"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"queues: No space left"):
            await journal.commit()
    journal.append(DeleteQueueLine(b"ree"))
    disk.heal()
    while journal.uncommitted:
        with suppress(StoreUnavailable):
            await journal.commit()
        await asyncio.sleep(0)
    journal.close()
    assert (tmp_path / "queues").read_bytes() == b"DELETE b25l\nDELETE dHdv\nDELETE cmVl\n"
    assert (tmp_path / "changes").read_bytes() == b"R cnJy bWlk\n"


async def test_a_journal_in_trouble_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = ChangeJournal(AppendOnlyFile(tmp_path / "queues"), AppendOnlyFile(tmp_path / "changes"))
    journal._patience = 0.0  # type: ignore[misc]
    FailingDisk(tmp_path, monkeypatch).fill(["write"])
    journal.append(DeleteQueueLine(b"two"))
    with pytest.raises(StoreUnavailable):
        await journal.commit()
    journal.close()
    with pytest.raises(StoreError, match="is closed"):
        await journal.commit()


async def test_commit_after_close_fails(tmp_path: Path) -> None:
    journal = ChangeJournal(AppendOnlyFile(tmp_path / "queues"), AppendOnlyFile(tmp_path / "changes"))
    journal.close()
    with pytest.raises(StoreError, match="is closed"):
        await journal.commit()
