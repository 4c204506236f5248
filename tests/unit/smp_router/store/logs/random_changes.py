"""A process that changes a store at random until it is killed: `python -m … folder seed`.

Four workers change queues of their own. Before a commit a worker writes to stdout which lines the commit is to make
durable, and after it that it is done:

begin <worker> <number of lines>, the lines
done <worker>

What a worker writes at once is short enough (PIPE_BUF) to arrive whole or not at all.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tocsin.durable import group_commit
from tocsin.errors import StoreError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import WaitingPacket
from tocsin.smp_router.store.logs import direct_log as smp_direct_file
from tocsin.smp_router.store.logs import snapshots
from tocsin.smp_router.store.logs.message_log import (
    MessageAdded,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
    encode_change_line,
)
from tocsin.smp_router.store.logs.store_files import StoreFiles, open_smp_store
from tocsin.smp_router.store.memory.memory_store import Journal, ServiceRemoved, SmpMemoryStore, StoreChange
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, StoredMessage, StoredNotification

WORKERS: Final = 4
QUEUES: Final = 10
NTF_ROUTER: Final = RouterLocation(("ntf.example",), "", bytes(32))
MESSAGE_CHANGES: Final = (MessageAdded, MessageRemoved, NotificationAdded, NotificationRemoved)


class Recorder:
    """A journal that also remembers what it was told."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.lines: list[bytes] = []

    def append(self, change: StoreChange) -> None:
        assert not isinstance(change, ServiceRemoved)  # has no line
        is_message = isinstance(change, MESSAGE_CHANGES)
        self.lines.append(encode_change_line(change) if is_message else change.encode())  # type: ignore[arg-type]
        self.journal.append(change)

    @property
    def appended(self) -> int:
        return self.journal.appended

    @property
    def durable(self) -> int:
        return self.journal.durable

    @property
    def uncommitted(self) -> bool:
        return self.journal.uncommitted

    @property
    def trouble(self) -> StoreError | None:
        return self.journal.trouble

    async def ready(self) -> None:
        await self.journal.ready()

    async def commit(self) -> None:
        await self.journal.commit()

    def wake_when_durable(self, wake: Callable[[], object]) -> None:
        self.journal.wake_when_durable(wake)

    async def until_durable(self) -> None:
        await self.journal.until_durable()


def worker_of(recipient_id: bytes) -> int:
    return recipient_id[0] % WORKERS


def change_something(store: SmpMemoryStore, own: list[bytes], worker: int, chance: random.Random) -> None:
    if not own or (len(own) < QUEUES and chance.random() < 0.2):
        recipient_id = bytes([worker]) + chance.randbytes(23)
        queue = QueueRecord(recipient_id, (chance.randbytes(44),), chance.randbytes(32), chance.randbytes(24))
        store.add_queue(queue)
        own.append(queue.recipient_id)
        return
    queue_id = chance.choice(own)
    found = store.queue_by_recipient(queue_id)
    assert found is not None
    match chance.randrange(15):
        case 0:
            store.delete_queue(queue_id)
            own.remove(queue_id)
        case 1:
            store.update_queue(replace(found, sender_key=chance.randbytes(44)))
        case 2 | 3:
            keys = chance.randbytes(24), chance.randbytes(44), chance.randbytes(32)
            store.update_queue(replace(found, notifier=NotifierRecord(*keys)))
        case 4:
            store.update_queue(replace(found, notifier=None))
        case 5 | 6 | 7 if (head := store.head_message(queue_id)) is not None:
            store.remove_message(queue_id, head.message_id)
        case 8 if found.notifier is not None:
            for notification in store.notifications(found.notifier.notifier_id)[:1]:
                store.remove_notification(found.notifier.notifier_id, notification.nonce)
        case 12 if found.notifier is not None:
            minimum = chance.choice(list(MinimumPriority))
            store.direct.set_minimum_priority(found.notifier.notifier_id, minimum)
        case 13 if found.notifier is not None:
            nid, pid = found.notifier.notifier_id, chance.randbytes(24)
            store.direct.add_packet(WaitingPacket(pid, 17, NTF_ROUTER, nid, chance.randbytes(448)))
        case 14 if found.notifier is not None:
            if (waiting := store.direct.packet_of(found.notifier.notifier_id)) is not None:
                store.direct.remove_packet(waiting.packet_id)
        case _:
            message = StoredMessage(
                chance.randbytes(24), 17, chance.randrange(4), chance.randbytes(chance.randrange(200))
            )
            store.write_message(queue_id, message, 5)
            if found.notifier is not None:
                meta = StoredNotification(message.message_id, 17, chance.randbytes(24), chance.randbytes(144))
                store.add_notification(found.notifier.notifier_id, meta)


async def work(worker: int, store: SmpMemoryStore, recorder: Recorder, chance: random.Random) -> None:
    own = [queue.recipient_id for queue in store.queues() if worker_of(queue.recipient_id) == worker]
    while True:
        recorder.lines.clear()
        for _ in range(chance.randrange(1, 4)):
            change_something(store, own, worker, chance)
        lines = b"".join(line + b"\n" for line in recorder.lines)
        os.write(1, b"begin %d %d\n%s" % (worker, len(recorder.lines), lines))
        await store.commit()
        os.write(1, b"done %d\n" % worker)


async def save(files: StoreFiles) -> None:
    while True:
        await files.save()
        await files.maintain()  # the log of direct notifications
        await asyncio.sleep(0.02)


async def main(folder: Path, seed: int) -> None:
    smp_direct_file.LEAST_BYTES = 0  # type: ignore[misc]
    snapshots.QUEUES_AT_ONCE = 1  # type: ignore[misc]
    group_commit.LEAST_BYTES = group_commit.GROWTH = 0  # type: ignore[attr-defined]
    store, files = open_smp_store(folder, now=time.time())
    recorder = Recorder(files._journal)
    store.keep_in(recorder)
    async with asyncio.TaskGroup() as tasks:
        for worker in range(WORKERS):
            tasks.create_task(work(worker, store, recorder, random.Random(f"{seed} {worker}")))
        tasks.create_task(save(files))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
