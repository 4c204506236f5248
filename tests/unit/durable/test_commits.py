"""Commits while the disk or the database has trouble: who waits, who is told, and what happens when it passes."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.smp_harness import until
from tocsin.durable import commits
from tocsin.durable.commits import Commits
from tocsin.errors import StoreError, StoreUnavailable


class HeldCommits(Commits):
    """Writes that succeed or fail when the test says so."""

    def __init__(self, patience: float = 1000.0) -> None:
        super().__init__(patience)
        self.writes = 0

    def change(self) -> None:
        self._appended += 1

    def _start_write(self) -> None:
        self.writes += 1
        self.upto = self._appended

    def succeed(self) -> None:
        self._written(self.upto)

    def fail_once(self, text: str = "no space") -> None:
        self._attempt_failed(StoreUnavailable(text))

    def fail_for_good(self) -> None:
        self._fail(StoreError("fenced"))


async def started(commit: asyncio.Task[None]) -> None:
    await asyncio.sleep(0)
    assert not commit.done()


async def committing(store: HeldCommits) -> asyncio.Task[None]:
    """Make a change, and a task that waits until it is durable."""
    store.change()
    commit = asyncio.create_task(store.commit())
    await started(commit)
    return commit


async def test_a_commit_waits_until_the_trouble_has_passed() -> None:
    store = HeldCommits()
    store.change()
    commit = asyncio.create_task(store.commit())
    await started(commit)
    store.fail_once()
    assert str(store.trouble) == "no space"
    ready = asyncio.create_task(store.ready())
    await started(commit)
    await started(ready)
    store.succeed()
    await asyncio.gather(commit, ready)
    assert store.trouble is None
    assert not store.uncommitted
    await store.ready()


async def test_when_the_patience_ends_all_are_told_until_it_works_again() -> None:
    store = HeldCommits(patience=0.0)
    store.change()
    commit = asyncio.create_task(store.commit())
    await started(commit)
    store.fail_once()
    for waiting in (commit, store.ready(), store.commit()):
        with pytest.raises(StoreUnavailable, match="no space"):
            await waiting
    patient = asyncio.create_task(store.until_durable())
    await started(patient)
    store.fail_once("still no space")
    await started(patient)
    store.succeed()
    await patient
    await store.ready()
    await store.commit()
    assert store.writes == 1


async def test_a_write_that_takes_long_is_trouble_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SLOW_SECONDS", 0.001)
    store = HeldCommits(patience=0.0)
    store.change()
    with pytest.raises(StoreUnavailable, match="slow"):
        await store.commit()
    assert store.trouble is not None
    store.succeed()
    assert store.trouble is None


async def test_what_fails_for_good_is_told_at_once_and_always() -> None:
    store = HeldCommits()
    lost = asyncio.create_task(store.lost())
    store.change()
    commit = asyncio.create_task(store.commit())
    await started(commit)
    store.fail_for_good()
    for waiting in (commit, store.ready(), store.commit(), store.until_durable()):
        with pytest.raises(StoreError, match="fenced") as raised:
            await waiting
        assert not isinstance(raised.value, StoreUnavailable)
    assert str(await lost) == "fenced"
    assert str(await store.lost()) == "fenced"
    assert store.uncommitted


async def test_a_committer_is_woken_once_by_the_write_of_its_own_changes() -> None:
    store = HeldCommits()
    first = await committing(store)
    second = await committing(store)
    assert store.writes == 1  # the second change came too late for it
    store.succeed()
    await first
    await until(lambda: store.writes == 2)
    assert not second.done()
    store.succeed()
    await second
    assert not store.uncommitted


async def test_after_a_write_for_several_the_next_one_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "GATHER_SECONDS", 0.01)
    store = HeldCommits()

    async def change_and_commit() -> None:
        store.change()
        await store.commit()

    several = [asyncio.create_task(change_and_commit()) for _ in range(commits.SEVERAL)]
    await started(several[0])
    store.upto = store.appended
    store.succeed()
    await asyncio.gather(*several)
    later = [asyncio.create_task(change_and_commit()) for _ in range(2)]
    await started(later[0])
    assert store.writes == 1
    await until(lambda: store.writes == 2)
    store.succeed()
    await asyncio.gather(*later)
    alone = asyncio.create_task(change_and_commit())
    await started(alone)
    assert store.writes == 3  # two are not several
    store.succeed()
    await alone


async def test_a_store_that_ends_begins_no_further_write() -> None:
    store = HeldCommits()
    first = await committing(store)
    second = await committing(store)
    store.succeed()
    store.fail_for_good()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(each) for each in answers] == ["fenced", "fenced"]
    assert store.writes == 1


async def test_who_waits_for_something_else_as_well_is_called_at_the_end_of_the_patience_and_when_it_is_durable() -> (
    None
):
    store, calls = HeldCommits(patience=0.0), list[str]()
    store.change()
    store.wake_when_durable(lambda: calls.append("early"))
    store.change()  # the write in progress does not have it
    store.wake_when_durable(lambda: calls.append("late"))
    store.fail_once()
    await until(lambda: len(calls) == 2)
    store.wake_when_durable(lambda: calls.append("impatient"))
    await until(lambda: len(calls) == 3)
    store.succeed()
    assert calls == ["early", "late", "impatient", "early"]
    await until(lambda: store.writes == 2)  # although nobody has asked again
    store.succeed()
    assert calls[4:] == ["late", "impatient"]
    store.wake_when_durable(lambda: calls.append("nothing to wait for"))
    await until(lambda: len(calls) == 7)
