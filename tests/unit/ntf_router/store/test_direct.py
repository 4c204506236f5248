"""Queues of direct notifications (`tocsin.ntf_router.store.interface.DirectStore`), in each kind of NTF store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import xor

import pytest

from tests.unit.ntf_router.store.opened_stores import KINDS, opened_store
from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    REGISTERED,
    ROUTER,
    filled,
    filler,
    queue,
    received,
    subscription,
)
from tocsin.ntf_router.store.interface import NtfStore, WantedPage
from tocsin.ntf_router.store.records import (
    Associated,
    NotRecorded,
    Recorded,
    SettledNotification,
    TokenRecord,
)
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes

NOW = 1_700_000_000
LATER = NOW + 1_000_000
SERVICE = filler("service", 24)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[NtfStore]:
    async with opened_store(request) as opened:
        yield opened


async def associated(store: NtfStore, owner: TokenRecord, *names: object) -> None:
    for name in names:
        assert await store.associate(owner.token_id, queue(name), NOW) is Associated.ADDED


def hash_of(*names: object) -> bytes:
    return ids_hash_bytes(reduce(xor, (id_hash(queue(name).notifier_id) for name in names), 0))


async def test_an_associated_queue_has_no_key_and_is_counted_with_the_service(store: NtfStore) -> None:
    owner = await filled(store, "owner", "keyed")
    await associated(store, owner, "a", "b")
    used = await store.used_router(ROUTER)
    assert used is not None
    assert (used.associated_count, used.associated_hash, used.individual_count) == (2, hash_of("a", "b"), 1)
    found = await store.subscription_of(queue("a"))
    assert found is not None
    assert (found.token_id, found.notifier_key, found.status) == (
        owner.token_id,
        b"",
        SubscriptionState.ACTIVE,
    )
    assert found.service_associated


async def test_associating_twice_changes_nothing(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.KNOWN
    used = await store.used_router(ROUTER)
    assert used is not None
    assert used.associated_count == 1


async def test_a_queue_is_one_tokens_only(store: NtfStore) -> None:
    owner = await filled(store, "owner", "keyed")
    thief = await filled(store, "thief")
    await associated(store, owner, "a")
    for taken in ("a", "keyed"):
        assert await store.associate(thief.token_id, queue(taken), NOW) is Associated.TAKEN
    assert await store.associate(owner.token_id, queue("keyed"), NOW) is Associated.TAKEN
    assert not await store.dissociate(thief.token_id, queue("a"), LATER)
    assert not await store.dissociate(owner.token_id, queue("keyed"), LATER)
    assert await store.subscription_of(queue("a"))


async def test_only_an_active_token_gets_queues(store: NtfStore) -> None:
    waiting = await filled(store, "waiting", status=REGISTERED)
    assert await store.associate(waiting.token_id, queue("a"), NOW) is Associated.NO_TOKEN
    assert await store.associate(filler("nobody", 24), queue("a"), NOW) is Associated.NO_TOKEN
    assert await store.subscription_of(queue("a")) is None


async def test_an_smp_router_is_its_key_hash_whichever_host_and_port_are_named(store: NtfStore) -> None:
    """docs/direct-notifications.md: hosts and ports are only where to look for a router."""
    owner, thief = await filled(store, "owner"), await filled(store, "thief")
    await associated(store, owner, "a")
    for location in (replace(ROUTER, hosts=("elsewhere.example",)), replace(ROUTER, port="1234")):
        named = queue("a", location)
        assert await store.associate(owner.token_id, named, NOW) is Associated.KNOWN
        assert await store.associate(thief.token_id, named, NOW) is Associated.TAKEN
        assert not await store.dissociate(thief.token_id, named, LATER)
    used = await store.used_router(ROUTER)
    assert used is not None
    assert used.associated_count == 1
    assert await store.dissociate(owner.token_id, named, LATER)
    assert await store.subscription_of(queue("a")) is None
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.REMOVED


async def test_one_id_at_two_routers_is_refused(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    assert await store.associate(owner.token_id, queue("a", OTHER_ROUTER), NOW) is Associated.TAKEN


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(25)])
async def test_ids_have_their_length(store: NtfStore, wrong: bytes) -> None:
    owner = await filled(store, "owner")
    assert await store.associate(owner.token_id, NotifierQueue(ROUTER, wrong), NOW) is Associated.TAKEN


async def test_notifications_of_an_associated_queue_are_pushed_and_settled(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    [recorded] = await store.add_notifications(ROUTER, [received("a", 1)])
    assert isinstance(recorded, Recorded)
    assert recorded.token_id == owner.token_id
    [due] = await store.due_pushes([owner.token_id])
    [pending] = due.notifications
    assert pending.pending
    await store.settle(
        [
            SettledNotification(
                owner.token_id,
                queue("a").notifier_id,
                received("a", 1).nonce,
                "accepted",
                queue("a"),
            )
        ]
    )
    assert await store.due_pushes([owner.token_id]) == []
    assert (await store.accounting()).accepted == 1
    assert (await store.accounting()).difference == 0


async def test_a_router_cannot_speak_for_the_queues_of_another(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    other = await filled(store, "other")
    assert await store.associate(other.token_id, queue("b", OTHER_ROUTER), NOW) is Associated.ADDED
    results = await store.add_notifications(OTHER_ROUTER, [received("a"), received("b")])
    assert results[0] is NotRecorded.UNKNOWN_QUEUE
    assert isinstance(results[1], Recorded)


async def test_what_its_owner_ended_does_not_come_back(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    ended: list[SettledNotification] = []
    store.report_settled_to(ended.extend)
    await store.add_notifications(ROUTER, [received("a", 1)])
    assert await store.dissociate(owner.token_id, queue("a"), LATER)
    assert await store.subscription_of(queue("a")) is None
    assert [(each.queue, each.outcome) for each in ended] == [(queue("a"), "subscription_removed")]
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.REMOVED
    assert await store.associate(owner.token_id, queue("a"), LATER) is Associated.ADDED
    assert (await store.accounting()).difference == 0


async def test_an_end_that_arrives_first_holds_too(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    assert await store.dissociate(owner.token_id, queue("a"), LATER)
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.REMOVED


async def test_an_end_is_forgotten_when_no_packet_can_bring_the_queue_back(store: NtfStore) -> None:
    """Suspected in issue 17, and true: ends were kept for ever."""
    owner = await filled(store, "owner")
    assert await store.dissociate(owner.token_id, queue("a"), NOW + 10)
    assert await store.dissociate(owner.token_id, queue("b"), LATER)
    assert await store.forget_ended(NOW) == 0
    assert await store.forget_ended(NOW + 10) == 1
    assert await store.associate(owner.token_id, queue("b"), NOW) is Associated.REMOVED


async def test_the_end_of_a_queue_binds_only_the_token_that_ended_it(store: NtfStore) -> None:
    """A stranger who knows the id could otherwise block its owner."""
    owner, stranger = await filled(store, "owner"), await filled(store, "stranger")
    assert await store.dissociate(stranger.token_id, queue("a"), LATER)
    assert await store.associate(stranger.token_id, queue("a"), NOW) is Associated.REMOVED
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.ADDED


async def test_a_queue_can_end_without_a_mark(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    assert await store.dissociate(owner.token_id, queue("a"), None)
    assert await store.subscription_of(queue("a")) is None
    assert await store.dissociate(owner.token_id, queue("never there"), None)
    assert await store.forget_ended(LATER) == 0
    assert await store.associate(owner.token_id, queue("a"), NOW) is Associated.ADDED


async def test_a_deleted_queue_goes_after_a_while(store: NtfStore) -> None:
    owner = await filled(store, "owner", "keyed")
    await associated(store, owner, "a", "b")
    assert (
        await store.note_deleted(ROUTER, [queue(each).notifier_id for each in ("a", "keyed", "c")], NOW) == 1
    )
    used = await store.used_router(ROUTER)
    assert used is not None
    assert used.associated_count == 1
    assert await store.remove_deleted(NOW) == []
    assert await store.remove_deleted(NOW + 1) == [queue("a")]
    assert await store.subscription_of(queue("a")) is None
    assert await store.subscription_of(queue("b"))
    assert await store.subscription_of(queue("keyed"))
    # Nobody has proved to want it: it can be associated again.
    await associated(store, owner, "a")


async def test_the_first_word_counts_for_how_long_a_queue_is_gone(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    await store.note_deleted(ROUTER, [queue("a").notifier_id], NOW)
    await store.note_deleted(ROUTER, [queue("a").notifier_id], LATER)
    assert await store.remove_deleted(NOW + 1) == [queue("a")]


async def test_a_queue_that_notifies_is_not_gone(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    await store.note_deleted(ROUTER, [queue("a").notifier_id], NOW)
    [recorded] = await store.add_notifications(ROUTER, [received("a", 1)])
    assert isinstance(recorded, Recorded)
    assert await store.note_alive(ROUTER, [queue("a").notifier_id]) == 1
    assert await store.note_alive(ROUTER, [queue("a").notifier_id]) == 0
    assert await store.remove_deleted(LATER) == []
    used = await store.used_router(ROUTER)
    assert used is not None
    assert used.associated_count == 1


async def test_associated_queues_are_never_subscribed_one_by_one(store: NtfStore) -> None:
    owner = await filled(store, "owner", "keyed")
    await associated(store, owner, "a")
    ids: Sequence[bytes] = [queue("a").notifier_id]
    assert await store.set_statuses(ROUTER, [(queue("a").notifier_id, SubscriptionState.DELETED)]) == 0
    assert await store.subscribed(ROUTER, ids, None) == 0
    await store.subscribed(ROUTER, [queue("keyed").notifier_id], SERVICE)
    assert await store.forget_service(ROUTER) == 1
    page = await store.queues_to_subscribe(ROUTER, WantedPage(None, 10, with_associated=True))
    assert [notifier_id for notifier_id, _ in page.queues] == [queue("keyed").notifier_id]
    used = await store.used_router(ROUTER)
    assert used is not None
    assert (used.associated_count, used.individual_count) == (1, 1)


async def test_queues_go_with_their_token(store: NtfStore) -> None:
    owner = await filled(store, "owner", "keyed")
    await associated(store, owner, "a", "b")
    await store.add_notifications(ROUTER, [received("a", 1)])
    queues = await store.delete_token(owner.token_id)
    assert queues is not None
    assert set(queues) == {queue("a"), queue("b"), queue("keyed")}
    assert await store.subscription_of(queue("a")) is None
    heir = await filled(store, "heir")
    await associated(store, heir, "a")
    assert (await store.accounting()).difference == 0


async def test_a_subscription_in_the_old_way_does_not_take_an_associated_queue(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await associated(store, owner, "a")
    assert not await store.add_subscription(subscription("a", owner))


async def test_keys_are_kept(store: NtfStore) -> None:
    assert await store.direct_keys() is None
    assert await store.set_direct_keys(b"first", None)
    assert await store.set_direct_keys(bytes(range(256)), b"first")
    assert await store.direct_keys() == bytes(range(256))
