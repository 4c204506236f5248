"""SIGKILL at random moments: what was committed is there, what was removed stays away."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.unit.smp_router.store.logs.random_changes import MESSAGE_CHANGES, WORKERS, worker_of
from tests.unit.smp_router.store.logs.test_store_files import abandon, opened
from tocsin.durable.log_fields import BadLogLine
from tocsin.smp_router.store.logs.direct_log import (
    DIRECT_CHANGES,
    MinimumPrioritySet,
    PacketAdded,
    decode_direct_line,
)
from tocsin.smp_router.store.logs.message_log import (
    MessageAdded,
    NotificationAdded,
    decode_change_line,
)
from tocsin.smp_router.store.logs.store_log import CreateQueueLine, decode_store_log_line
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore, StoreChange

ROUNDS: Final = 10
REPOSITORY: Final = Path(__file__).parents[5]
Change = StoreChange
State = dict[bytes, tuple[Change, ...]]
"""What makes each queue, with its messages and notifications."""


def state_of(store: SmpMemoryStore) -> State:
    state: State = {}
    for queue in store.queues():
        rid = queue.recipient_id
        messages = [MessageAdded(rid, message) for message in store.messages(rid)]
        nid = queue.notifier.notifier_id if queue.notifier is not None else b""
        notifications = [NotificationAdded(nid, notification) for notification in store.notifications(nid)]
        minimum = MinimumPrioritySet(nid, store.direct.minimum_priority(nid))
        waiting = store.direct.packet_of(nid)
        packets = [] if waiting is None else [PacketAdded(waiting)]
        state[rid] = (CreateQueueLine(queue), *messages, *notifications, minimum, *packets)
    return state


def after(state: State, changes: Iterable[Change]) -> State:
    store = SmpMemoryStore()
    for change in itertools.chain(*state.values(), changes):
        store.restore(change)
    return state_of(store)


def possible_states(committed: State, begun: list[Change]) -> Iterator[State]:
    """After a crash any first part of the lines for each of the three files may be there."""
    queue_changes, message_changes, direct_changes = [], [], []
    for change in begun:
        if isinstance(change, MESSAGE_CHANGES):
            message_changes.append(change)
        elif isinstance(change, DIRECT_CHANGES):
            direct_changes.append(change)
        else:
            queue_changes.append(change)
    parts = [range(len(changes) + 1) for changes in (queue_changes, message_changes, direct_changes)]
    for queues, messages, direct in itertools.product(*parts):
        found = [*queue_changes[:queues], *message_changes[:messages], *direct_changes[:direct]]
        yield after(committed, found)


def decoded(line: bytes) -> Change:
    for decode in (decode_change_line, decode_direct_line):
        with suppress(BadLogLine):
            return decode(line)
    return decode_store_log_line(line)


def output_until_killed(folder: Path, seed: int, commits: int) -> list[bytes]:
    """What a process told that was killed after so many commits."""
    command = [
        sys.executable,
        "-m",
        "tests.unit.smp_router.store.logs.random_changes",
        str(folder),
        str(seed),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip(b"\n"))
            commits -= line.startswith(b"done")
            if commits == 0:
                process.kill()  # what is in the pipe still comes
    assert process.returncode == -9, "it ended by itself"
    return lines


def committed_and_begun(lines: list[bytes]) -> tuple[dict[int, list[Change]], dict[int, list[Change]]]:
    """For each worker."""
    committed: dict[int, list[Change]] = {worker: [] for worker in range(WORKERS)}
    begun: dict[int, list[Change]] = {worker: [] for worker in range(WORKERS)}
    rest = iter(lines)
    for line in rest:
        word, worker, *count = line.split()
        if word == b"done":
            committed[int(worker)] += begun[int(worker)]
            begun[int(worker)] = []
        else:
            begun[int(worker)] = [decoded(next(rest)) for _ in range(int(count[0]))]
    return committed, begun


def own(state: State, worker: int) -> State:
    return {rid: queue for rid, queue in state.items() if worker_of(rid) == worker}


def test_killed_at_random_moments_it_loses_nothing_committed(tmp_path: Path) -> None:
    chance = random.Random(1)
    folder, copy = tmp_path / "store", tmp_path / "copy"
    folder.mkdir()
    state: State = {}
    for seed in range(ROUNDS):
        committed, begun = committed_and_begun(output_until_killed(folder, seed, chance.randrange(1, 300)))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        store, files = opened(copy)
        abandon(files)
        found = state_of(store)
        for worker in range(WORKERS):
            expected = after(own(state, worker), committed[worker])
            assert own(found, worker) in list(possible_states(expected, begun[worker]))
        state = found
    assert state
