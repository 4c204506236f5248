"""A disk that fails at any call in a store's life: what was acknowledged is there, and it goes on by itself."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.failing_disk import FailingDisk, without_syncs
from tests.doubles.registered_tokens import add_token, registration
from tests.unit.ntf_router.store import samples
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.durable import commits, group_commit
from tocsin.errors import StoreUnavailable
from tocsin.ntf_router.store.logs.store_files import NtfFolderStore, NtfOpenOptions, open_ntf_store
from tocsin.protocol.ntf.statuses import SubscriptionState

FAULTS: Final = ((1, errno.ENOSPC), (4, errno.EIO))
"""How many calls fail, and how."""
Step = Callable[[NtfFolderStore], Awaitable[Any]]


def steps() -> Iterator[Step]:
    """A life of a few tokens, queues and notifications."""
    owner, other = samples.token("a"), samples.token("b")
    yield lambda store: add_token(store, owner)
    yield lambda store: add_token(store, other)
    for name in ("x", "y"):
        yield lambda store, name=name: store.add_subscription(samples.subscription(name, owner))  # type: ignore[misc]
    yield lambda store: store.subscribed(samples.ROUTER, [samples.queue("x").notifier_id], b"s" * 24)
    yield lambda store: store.add_notifications(samples.ROUTER, [samples.received("x", 1)])
    yield lambda store: store.settle([samples.settled(owner, "x", 1)])
    yield lambda store: store.save()
    yield lambda store: store.add_notifications(samples.ROUTER, [samples.received("x", 2)])
    yield lambda store: store.associate(owner.token_id, samples.queue("z"), 1)
    yield lambda store: store.add_notifications(samples.ROUTER, [samples.received("z", 3)])
    yield lambda store: store.save()
    yield lambda store: store.maintain()
    yield lambda store: store.note_deleted(samples.ROUTER, [samples.queue("z").notifier_id], 5)
    yield lambda store: store.dissociate(owner.token_id, samples.queue("w"), 9)
    yield lambda store: store.set_statuses(
        samples.ROUTER, [(samples.queue("y").notifier_id, SubscriptionState.DELETED)]
    )
    yield lambda store: store.delete_subscription(samples.subscription("y", owner).subscription_id)
    yield lambda store: store.delete_token(other.token_id)
    yield lambda store: store.maintain()
    yield lambda store: store.set_direct_keys(b"keys", None)


def contents(store: NtfFolderStore) -> dict[str, Any]:
    tables = store.tables
    return {
        "tokens": sorted(store.all_tokens(), key=lambda each: each.token_id),
        "subscriptions": sorted(
            (
                (each.subscription_id, each.token_id, each.queue.notifier_id)
                for each in store.all_subscriptions()
            ),
        ),
        "services": sorted((service for _, service in store.all_services())),
        "notifications": sorted(store.all_notifications()),
        "totals": store.all_totals(),
        "ended": sorted(tables.direct.ended()),
        "gone": dict(tables.direct.gone),
    }


def opened(folder: Path) -> NtfFolderStore:
    return open_ntf_store(folder, NtfOpenOptions(), now=1_700_000_000.0)


def found_in(folder: Path) -> dict[str, Any]:
    store = opened(folder)
    found = contents(store)
    abandon(store)
    return found


def without_times(state: dict[str, Any]) -> dict[str, Any]:
    """The second log of a step that was not acknowledged may be missing: it has the times of registration."""
    return state | {"tokens": [replace(each, registered_at=0) for each in state["tokens"]]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)
    monkeypatch.setattr(commits, "FIRST_DELAY", 0.0)
    for name in ("LEAST_BYTES", "GROWTH"):  # each maintenance makes the store log compact
        monkeypatch.setattr(group_commit, name, 0)


async def repeated(step: Callable[[], Awaitable[Any]]) -> Any:
    """As the router does, or whoever calls it."""
    while True:
        with suppress(StoreUnavailable):
            return await step()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "error"), FAULTS)
async def test_a_fault_at_any_call_passes_and_loses_nothing_acknowledged(
    tmp_path: Path, count: int, error: int
) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    states: list[dict[str, Any]] = []
    """The contents after each step."""

    async def lived(first: int) -> int:
        for each in (folder, copy):
            shutil.rmtree(each, ignore_errors=True)
        folder.mkdir()
        at_fault: list[int] = []
        done = 0
        with pytest.MonkeyPatch.context() as patch:
            disk = FailingDisk(folder, patch)

            def crash() -> None:
                shutil.copytree(folder, copy)
                at_fault.append(done)

            disk.when_failing = crash
            if first:
                disk.fail(first, count, error)

            async def reopened() -> NtfFolderStore:
                return opened(folder)

            store = await repeated(reopened)
            if not first:
                states.append(contents(store))
            for step in steps():
                await repeated(partial(step, store))
                done += 1
                if not first:
                    states.append(contents(store))
                assert contents(store) == states[done]
            calls = disk.calls
            with suppress(StoreUnavailable):
                await store.close()
        assert found_in(folder) == states[done], "after the fault has passed"
        if at_fault:
            possible = [*map(without_times, states[at_fault[0] : at_fault[0] + 2])]
            assert without_times(found_in(copy)) in possible, "killed at the fault"
        return calls + 20

    calls = await lived(0)
    assert calls > 80
    for first in range(1, calls + 1):
        await lived(first)


async def test_while_it_lasts_nothing_changes_and_everybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method that clients, SMP routers or providers cause to change something."""
    folder = tmp_path / "store"
    folder.mkdir()
    monkeypatch.setattr(commits, "PATIENCE", 0.0)
    store = opened(folder)
    store._journal._patience = 0.0  # type: ignore[misc]
    owner = await samples.filled(store, "a", "x")
    await store.add_notifications(samples.ROUTER, [samples.received("x", 1)])
    disk = FailingDisk(folder, monkeypatch)
    disk.fill()
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.set_cron(owner.token_id, 20, 5)
    begun = contents(store)
    queue, router = samples.queue("x"), samples.ROUTER
    changes: list[Step] = [
        *steps(),
        lambda store: store.check(),
        lambda store: store.token(owner.token_id),
        lambda store: registration(store, owner.device_token, owner.verify_key),
        lambda store: store.note_use(owner.token_id, 86_400),
        lambda store: store.register_again(owner.token_id, 7),
        lambda store: store.confirm_token(owner.token_id),
        lambda store: store.activate_token(owner.token_id, owner.code),
        lambda store: store.invalidate_token(owner.token_id, owner.device_token, samples.CONFIRMED),
        lambda store: store.replace_token(owner.token_id, samples.device_token("n"), b"c" * 32, 7),
        lambda store: store.set_cron(owner.token_id, 30, 5),
        lambda store: store.delete_token(owner.token_id),
        lambda store: store.cron_sent([owner.token_id], 7),
        lambda store: store.subscription(samples.subscription("x", owner).subscription_id),
        lambda store: store.subscription_of(queue),
        lambda store: store.forget_service(router),
        lambda store: store.note_alive(router, [queue.notifier_id]),
        lambda store: store.remove_deleted(10),
        lambda store: store.expire_pending(9e9),
    ]
    for change in changes:
        if change.__code__.co_names == ("maintain",):  # it waits for better times
            continue
        with pytest.raises(StoreUnavailable):
            await change(store)
        assert contents(store) == begun
    disk.heal()
    while store._journal.trouble is not None:  # noqa: ASYNC110 - nobody is told when it passes
        await asyncio.sleep(0)
    await store.set_cron(owner.token_id, 30, 5)
    await store.close()
    assert [each.cron_minutes for each in opened(folder).all_tokens()] == [30]
