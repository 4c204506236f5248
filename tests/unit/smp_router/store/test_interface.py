"""What every SMP store keeps for direct notifications, however it keeps it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.smp_router.store.logs.test_store_files import abandon
from tests.unit.smp_router.store.postgres.opened_stores import cut_off
from tests.unit.smp_router.store.postgres.opened_stores import opened as opened_database
from tests.unit.smp_router.store.samples import (
    a_location,
    a_notifier,
    a_packet,
    a_queue,
    a_service,
    some_bytes,
)
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord
from tocsin.smp_router.store.logs.store_files import StoreFiles, open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import PostgresStore
from tocsin.smp_router.store.records import QueueRecord

NOW: Final = 1_760_000_000

Open = Callable[[], Awaitable[SmpMemoryStore]]
"""Opens the store again, as if the process had been killed after its last commit."""


@pytest.fixture(params=["logs", "database"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A folder, or the address of a database."""
    if request.param == "logs":
        return tmp_path
    url: str = request.getfixturevalue("url")
    return url


@pytest.fixture
async def open_store(where: Path | str) -> AsyncIterator[Open]:
    opened: list[StoreFiles | PostgresStore] = []

    async def open_again() -> SmpMemoryStore:
        for each in opened:
            kill(each)
        store, durable = await open_at(where)
        opened[:] = [durable]
        assert durable.report.skipped == 0
        store.check_indices()
        return store

    yield open_again
    await opened[0].close()


async def open_at(where: Path | str) -> tuple[SmpMemoryStore, StoreFiles | PostgresStore]:
    return open_smp_store(where, now=NOW) if isinstance(where, Path) else await opened_database(where)


def kill(durable: StoreFiles | PostgresStore) -> None:
    if isinstance(durable, PostgresStore):
        cut_off(durable)
    else:
        abandon(durable)


def direct(store: SmpMemoryStore) -> dict[str, Any]:
    kept = store.direct
    return {
        "routers": {record.service_id: record for record in kept.ntf_routers()},
        "minimums": dict(kept.minimum_priorities()),
        "packets": list(kept.packets()),
    }


def a_notifying_queue(store: SmpMemoryStore) -> tuple[QueueRecord, bytes]:
    notifier = a_notifier()
    queue = replace(a_queue(), notifier=notifier)
    assert store.add_queue(queue)
    return queue, notifier.notifier_id


async def test_an_ntf_router_is_kept_and_replaced(open_store: Open) -> None:
    store, service = await open_store(), a_service()
    store.add_service(service)
    first = NtfRouterRecord(service.service_id, a_location())
    second = NtfRouterRecord(service.service_id, a_location("::1", "443"), some_bytes(44), 17)
    third = NtfRouterRecord(service.service_id, a_location("a@\N{SNOWMAN}"), some_bytes(44), 1 << 40)
    for record in (first, second, third):
        store.direct.set_ntf_router(record)
        assert store.direct.ntf_router(service.service_id) == record
        await store.commit()
        store = await open_store()
        assert store.direct.ntf_router(service.service_id) == record
    assert store.direct.ntf_router(some_bytes(24)) is None


async def test_a_minimum_priority_is_all_unless_set(open_store: Open) -> None:
    store = await open_store()
    _, notifier_id = a_notifying_queue(store)
    assert store.direct.minimum_priority(notifier_id) is MinimumPriority.ALL
    for minimum in (MinimumPriority.OFF, MinimumPriority.HIGH, MinimumPriority.ALL, MinimumPriority.PRIORITY):
        store.direct.set_minimum_priority(notifier_id, minimum)
        await store.commit()
        store = await open_store()
        assert store.direct.minimum_priority(notifier_id) is minimum
    store.direct.set_minimum_priority(some_bytes(24), MinimumPriority.OFF)  # nobody's
    assert list(store.direct.minimum_priorities()) == [(notifier_id, MinimumPriority.PRIORITY)]


async def test_packets_are_kept_until_removed_and_counted(open_store: Open) -> None:
    store = await open_store()
    _, notifier_id = a_notifying_queue(store)
    one, other = a_location(), a_location()
    packets = [a_packet(one, notifier_id, 1), a_packet(one, None, 2), a_packet(other, None, 3)]
    for packet in packets:
        assert store.direct.add_packet(packet)
    await store.commit()
    store = await open_store()
    assert list(store.direct.packets()) == packets
    assert store.direct.packet_of(notifier_id) == packets[0]
    assert store.direct.packet(packets[1].packet_id) == packets[1]
    counts = [store.direct.packets_to(each) for each in (one, other, a_location())]
    assert (store.direct.packet_count(), counts) == (3, [2, 1, 0])
    assert store.direct.remove_packet(packets[0].packet_id)
    assert not store.direct.remove_packet(packets[0].packet_id)
    await store.commit()
    store = await open_store()
    assert list(store.direct.packets()) == packets[1:]
    assert store.direct.packet_of(notifier_id) is None


async def test_a_notifier_has_one_packet(open_store: Open) -> None:
    store = await open_store()
    _, notifier_id = a_notifying_queue(store)
    first, second = [a_packet(a_location(), notifier_id) for _ in range(2)]
    assert store.direct.add_packet(first)
    await store.commit()
    assert store.direct.add_packet(second)
    await store.commit()
    store = await open_store()
    assert list(store.direct.packets()) == [second]
    assert not store.direct.add_packet(a_packet(a_location(), some_bytes(24)))  # whose notifier is gone
    assert store.direct.packet_count() == 1


@pytest.mark.parametrize("how", ["deleted", "without a notifier", "with another notifier"])
async def test_what_a_notifier_has_goes_with_it(open_store: Open, how: str) -> None:
    """But not a packet that ends an association."""
    store = await open_store()
    queue, notifier_id = a_notifying_queue(store)
    _, other_id = a_notifying_queue(store)
    for each in (notifier_id, other_id):
        store.direct.set_minimum_priority(each, MinimumPriority.OFF)
        assert store.direct.add_packet(a_packet(a_location(), each, 1))
    ending = a_packet(a_location(), None, 2)
    assert store.direct.add_packet(ending)
    await store.commit()
    if how == "deleted":
        store.delete_queue(queue.recipient_id)
    else:
        store.update_queue(replace(queue, notifier=a_notifier() if "another" in how else None))
    await store.commit()
    before = direct(store)
    store = await open_store()
    assert direct(store) == before
    assert before["minimums"] == {other_id: MinimumPriority.OFF}
    assert [each.notifier_id for each in before["packets"]] == [other_id, None]


async def test_it_stays_when_a_queue_is_changed_otherwise(open_store: Open) -> None:
    store = await open_store()
    queue, notifier_id = a_notifying_queue(store)
    store.direct.set_minimum_priority(notifier_id, MinimumPriority.OFF)
    assert store.direct.add_packet(a_packet(a_location(), notifier_id))
    assert queue.notifier is not None
    store.update_queue(
        replace(queue, notifier=replace(queue.notifier, service_id=some_bytes(24)), updated_at=1)
    )
    before = direct(store)
    await store.commit()
    assert direct(await open_store()) == before
    assert before["minimums"]
    assert before["packets"]


async def test_what_comes_and_goes_before_a_commit_leaves_nothing(open_store: Open) -> None:
    store = await open_store()
    queue, notifier_id = a_notifying_queue(store)
    store.direct.set_minimum_priority(notifier_id, MinimumPriority.OFF)
    packet = a_packet(a_location())
    store.direct.add_packet(packet)
    store.direct.add_packet(a_packet(a_location(), notifier_id))
    store.direct.remove_packet(packet.packet_id)
    store.delete_queue(queue.recipient_id)
    await store.commit()
    store = await open_store()
    assert direct(store) == {"routers": {}, "minimums": {}, "packets": []}


async def test_uncommitted_is_true_until_it_is_durable(open_store: Open) -> None:
    store, told = await open_store(), []
    told.append(store.uncommitted)
    store.direct.add_packet(a_packet(a_location()))
    told.append(store.uncommitted)
    await store.commit()
    told.append(store.uncommitted)
    assert told == [False, True, False]
