"""A snapshot that takes its time is one of the moment at which it began."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    ROUTER,
    device_token,
    filled,
    queue,
    received,
    settled,
    subscription,
)
from tocsin.ntf_router.store.logs import snapshots as ntf_snapshots
from tocsin.ntf_router.store.logs.change_log import decode_state_line
from tocsin.ntf_router.store.logs.snapshots import NtfStoreSnapshot
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore


async def test_changes_while_it_is_taken_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntf_snapshots, "PAUSE_AFTER", 1)
    store = NtfMemoryStore()
    owners = [
        await filled(
            store, number, *((number, queue) for queue in range(5)), device=device_token(min(number, 5))
        )
        for number in range(7)
    ]
    for number in range(7):
        batch = [received((number, queue), (number, queue), at=float(queue)) for queue in range(5)]
        await store.add_notifications(ROUTER, batch)
    await store.settle([settled(owners[3], (3, 4), (3, 4))])
    expected = sorted(NtfStoreSnapshot.of(store.tables).state_lines(1))
    slow = asyncio.ensure_future(NtfStoreSnapshot.taken_slowly(store.tables))
    await asyncio.sleep(0)  # it has taken the first token
    for owner in (owners[0], owners[1]):
        await store.settle([settled(owner, (owners.index(owner), 3), (owners.index(owner), 3))])
    await store.add_notifications(ROUTER, [received((2, 1), "new"), received((2, 1), "newer")])
    await store.delete_subscription(subscription((3, 4), owners[3]).subscription_id)
    await store.delete_token(owners[4].token_id)
    await store.activate_token(owners[5].token_id, owners[5].code)  # the sixth and the seventh are rivals
    heir = await filled(store, "heir", "heir")
    await store.add_notifications(ROUTER, [received("heir", "heir")])
    assert not slow.done()
    assert sorted((await slow).state_lines(1)) == expected
    assert store.tables.notifications.before_change is None
    assert (await store.due_pushes([heir.token_id]))[0].notifications


async def test_queues_of_direct_notifications_are_one_line_for_each_token_and_router() -> None:
    store = NtfMemoryStore()
    owners = [await filled(store, number) for number in range(3)]
    for owner in owners:
        for number in range(10):
            for router in (ROUTER, OTHER_ROUTER):
                await store.associate(owner.token_id, queue((owner.token_id, number, router), router), 0)
    lines = [line for line in NtfStoreSnapshot.of(store.tables).state_lines(1) if line.startswith(b"A ")]
    assert len(lines) == 6
    assert all(len(decode_state_line(line).notifier_ids) == 10 for line in lines)  # type: ignore[union-attr]


async def test_associations_while_it_is_taken_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntf_snapshots, "PAUSE_AFTER", 1)
    store = NtfMemoryStore()
    owners = [await filled(store, number) for number in range(6)]
    for owner in owners:
        for name in ("kept", "ended", "gone", "back"):
            await store.associate(owner.token_id, queue((owner.token_id, name)), 0)
        await store.note_deleted(ROUTER, [queue((owner.token_id, "back")).notifier_id], 5)
    expected = sorted(NtfStoreSnapshot.of(store.tables).state_lines(1))
    slow = asyncio.ensure_future(NtfStoreSnapshot.taken_slowly(store.tables))
    await asyncio.sleep(0)  # it has taken the first token
    for owner in owners:
        await store.associate(owner.token_id, queue((owner.token_id, "new")), 0)
        await store.dissociate(owner.token_id, queue((owner.token_id, "ended")), 100)
        await store.note_deleted(ROUTER, [queue((owner.token_id, "gone")).notifier_id], 9)
        await store.note_alive(ROUTER, [queue((owner.token_id, "back")).notifier_id])
    assert not slow.done()
    assert sorted((await slow).state_lines(1)) == expected
