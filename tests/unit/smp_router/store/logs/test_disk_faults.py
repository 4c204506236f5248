"""A disk that fails at any call in a store's life: what was acknowledged is there, and it goes on by itself."""

from __future__ import annotations

import errno
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.failing_disk import FailingDisk, without_syncs
from tests.unit.smp_router.store.logs.random_changes import Recorder, change_something
from tests.unit.smp_router.store.logs.test_kill import (
    Change,
    State,
    after,
    decoded,
    possible_states,
    state_of,
)
from tests.unit.smp_router.store.logs.test_store_files import abandon, opened
from tocsin.durable import commits, group_commit
from tocsin.errors import StoreUnavailable
from tocsin.smp_router.store.logs import direct_log
from tocsin.smp_router.store.logs.store_files import StoreFiles
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

STEPS: Final = 12
SAVED_AFTER: Final = (4, 8)
FAULTS: Final = ((1, errno.ENOSPC), (4, errno.EIO))
"""How many calls fail, and how."""


class Life:
    """A store that is opened, changed, saved and closed. A step that fails is repeated, as the router does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chance = random.Random(17)
        self._own: list[bytes] = []
        self.acknowledged: State = {}
        self.begun: list[Change] = []

    async def live(self) -> State:
        store, files = self._open()
        recorder = Recorder(files._journal)
        store.keep_in(recorder)
        for step in range(STEPS):
            recorder.lines.clear()
            for _ in range(3):
                change_something(store, self._own, 0, self._chance)
            self.begun = [decoded(line) for line in recorder.lines]
            await store.commit()
            self.acknowledged, self.begun = after(self.acknowledged, self.begun), []
            if step in SAVED_AFTER:
                await self._save(files)
        assert files._journal.trouble is None
        await self._close(store, files)
        return state_of(store)

    def _open(self) -> tuple[SmpMemoryStore, StoreFiles]:
        while True:
            with suppress(StoreUnavailable):
                return opened(self._folder)

    async def _save(self, files: StoreFiles) -> None:
        while True:
            with suppress(StoreUnavailable):
                await files.save()
                await files.maintain()
                return

    @staticmethod
    async def _close(store: SmpMemoryStore, files: StoreFiles) -> None:
        with suppress(StoreUnavailable):
            await files.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)
    monkeypatch.setattr(commits, "FIRST_DELAY", 0.0)
    for name in ("LEAST_BYTES", "GROWTH"):  # each maintenance makes the store log compact
        monkeypatch.setattr(group_commit, name, 0)
    monkeypatch.setattr(direct_log, "LEAST_BYTES", 0)


def found_in(folder: Path) -> State:
    store, files = opened(folder)
    found = state_of(store)
    abandon(files)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "error"), FAULTS)
async def test_a_fault_at_any_call_passes_and_loses_nothing_acknowledged(
    tmp_path: Path, count: int, error: int
) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"

    async def lived(first: int) -> int:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(copy, ignore_errors=True)
        folder.mkdir()
        life = Life(folder)
        with pytest.MonkeyPatch.context() as patch:
            disk = FailingDisk(folder, patch)
            at_fault: list[tuple[State, list[Change]]] = []

            def crash() -> None:
                shutil.copytree(folder, copy)
                at_fault.append((life.acknowledged, life.begun))

            disk.when_failing = crash
            if first:
                disk.fail(first, count, error)
            state = await life.live()
            calls = disk.calls
        assert state == life.acknowledged
        assert found_in(folder) == state, "after the fault has passed"
        if at_fault:
            acknowledged, begun = at_fault[0]
            assert found_in(copy) in list(possible_states(acknowledged, begun)), "killed at the fault"
        return calls

    calls = await lived(0)
    assert calls > 100
    for first in range(1, calls + 1):
        await lived(first)
