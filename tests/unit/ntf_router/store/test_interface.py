"""What every NTF store promises (`tocsin.ntf_router.store.interface`), for each implementation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from itertools import count
from operator import xor

import msgspec
import pytest

from tests.doubles.registered_tokens import add_token, registration
from tests.unit.ntf_router.store.opened_stores import KINDS, opened_store
from tests.unit.ntf_router.store.samples import (
    ACTIVE,
    CONFIRMED,
    OTHER_ROUTER,
    REGISTERED,
    ROUTER,
    device_token,
    filled,
    filler,
    pending,
    queue,
    received,
    settled,
    subscription,
    token,
)
from tocsin.crypto.keys import Ed448PrivateKey, X25519PrivateKey
from tocsin.errors import StoreFull
from tocsin.ntf_router.store.interface import NtfStore, Registered, Replaced, StoreCounts, WantedPage
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore
from tocsin.ntf_router.store.records import (
    Accounting,
    Associated,
    DuePush,
    LastNotification,
    NotRecorded,
    PendingNotification,
    ReceivedNotification,
    Recorded,
    RowLimits,
    SettledNotification,
    TokenRecord,
    UsedRouter,
    WantedRouter,
)
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    SubscriptionStatus,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, id_hash, ids_hash_bytes

INVALID = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
EXPIRED_TOKEN = TokenStatus(TokenState.EXPIRED)
NEW_TOKEN = TokenStatus(TokenState.NEW)
SERVICE = filler("service", 24)
S = SubscriptionState
ENDS: tuple[SubscriptionStatus, ...] = (S.END, S.DELETED, S.AUTH, SubscriptionFailed("SMP error QUOTA"))


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[NtfStore]:
    async with opened_store(request) as opened:
        yield opened


async def status_of(store: NtfStore, name: object) -> SubscriptionStatus:
    found = await store.subscription(filler(("subscription", name), 24))
    assert found is not None
    return found[0].status


async def due(store: NtfStore, owner: TokenRecord) -> DuePush:
    [found] = await store.due_pushes([owner.token_id])
    return found


async def pending_nonces(store: NtfStore, owner: TokenRecord) -> list[bytes]:
    found = await store.due_pushes([owner.token_id])
    return [each.nonce for push in found for each in push.notifications if each.pending]


async def accounting(store: NtfStore) -> Accounting:
    """After it was checked."""
    found = await store.accounting()
    assert found.difference == 0
    return found


async def all_pages(store: NtfStore, limit: int, *, with_associated: bool) -> list[bytes]:
    found, cursor = [], None
    for turn in count():
        assert turn < 1000
        page = await store.queues_to_subscribe(
            ROUTER, WantedPage(cursor, limit, with_associated=with_associated)
        )
        found += [notifier_id for notifier_id, _ in page.queues]
        assert len(page.queues) <= limit
        cursor = page.cursor
        if cursor is None:
            break
    return found


# Tokens


async def test_a_token_is_found_as_it_was_added(store: NtfStore) -> None:
    owner = token("a", cron_minutes=30, cron_sent_at=5, status=INVALID)
    assert await add_token(store, owner)
    assert await store.token(owner.token_id) == owner
    assert await registration(store, owner.device_token, owner.verify_key) == owner
    assert await store.token(token("b").token_id) is None


@pytest.mark.parametrize("provider", PushProvider)
async def test_a_token_of_each_provider_is_kept(store: NtfStore, provider: PushProvider) -> None:
    owner = token("a", device=device_token("a", provider), updated_at=None)
    assert await add_token(store, owner)
    assert await store.token(owner.token_id) == owner


async def test_S01_several_keys_register_one_device_token_side_by_side(store: NtfStore) -> None:
    """S1: none harms another, and no key finds the registration of another."""
    owners = [token(name, device=device_token("same")) for name in "abc"]
    for owner in owners:
        assert await add_token(store, owner)
    for owner in owners:
        assert await registration(store, owner.device_token, owner.verify_key) == owner
    assert await registration(store, device_token("same"), token("d").verify_key) is None
    assert await registration(store, device_token("other"), owners[0].verify_key) is None


async def test_registrations_that_nobody_verified_are_counted_and_old_ones_removed(store: NtfStore) -> None:
    """Only one device token is concerned. Tokens with subscriptions were verified once, and stay."""
    shared = device_token("same")
    states = {"new": REGISTERED, "confirmed": CONFIRMED, "active": ACTIVE, "invalid": INVALID}
    for name, status in states.items():
        assert await add_token(store, token(name, shared, status=status, registered_at=2000))
    for name in ("old", "replaced"):
        assert await add_token(store, token(name, shared, status=REGISTERED, registered_at=1000))
    assert await add_token(store, token("old and active", shared, registered_at=1000))
    assert await add_token(store, token("elsewhere", status=REGISTERED, registered_at=1000))
    assert await store.add_subscription(subscription("chat", token("replaced")))

    assert await store.unverified_registrations(shared, 500) == 4
    assert await store.unverified_registrations(shared, 1500) == 2
    assert await store.unverified_registrations(shared, 2500) == 0
    assert await store.unverified_registrations(device_token("unknown"), 500) == 0
    left = {
        name
        for name in (*states, "old", "replaced", "old and active", "elsewhere")
        if await store.token(token(name).token_id) is not None
    }
    assert left == {"active", "invalid", "replaced", "old and active", "elsewhere"}


async def test_a_registration_is_not_added_twice(store: NtfStore) -> None:
    owner = await filled(store, "a")
    assert not await add_token(store, replace(owner, token_id=filler("other", 24), code=b"x" * 32))
    assert not await add_token(store, token("b", token_id=owner.token_id))
    assert await store.token(owner.token_id) == owner
    assert (await store.counts()).tokens == 1


async def test_the_day_of_use_is_noted(store: NtfStore) -> None:
    owner = await filled(store, "a")
    await store.note_use(owner.token_id, 86_400 * 20_000)
    await store.note_use(owner.token_id, 86_400 * 20_000)
    await store.note_use(filler("nobody", 24), 86_400)
    assert await store.token(owner.token_id) == replace(owner, updated_at=86_400 * 20_000)


@pytest.mark.parametrize("status", [NEW_TOKEN, INVALID, EXPIRED_TOKEN])
async def test_a_dead_token_is_registered_again(store: NtfStore, status: TokenStatus) -> None:
    owner = await filled(store, "a", status=status)
    assert await store.register_again(owner.token_id, 77)
    assert await store.token(owner.token_id) == replace(owner, status=REGISTERED, registered_at=77)


@pytest.mark.parametrize("status", [REGISTERED, CONFIRMED, ACTIVE])
async def test_a_living_token_stays_as_it_is(store: NtfStore, status: TokenStatus) -> None:
    owner = await filled(store, "a", status=status)
    assert await store.register_again(owner.token_id, 77)
    assert await store.token(owner.token_id) == owner
    assert not await store.register_again(filler("nobody", 24), 77)


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (NEW_TOKEN, True),
        (REGISTERED, True),
        (CONFIRMED, False),
        (ACTIVE, False),
        (INVALID, True),
        (EXPIRED_TOKEN, True),
    ],
)
async def test_confirming(store: NtfStore, status: TokenStatus, changes: bool) -> None:
    owner = await filled(store, "a", status=status)
    assert await store.confirm_token(owner.token_id) is changes
    assert await store.token(owner.token_id) == replace(owner, status=CONFIRMED if changes else status)
    assert not await store.confirm_token(filler("nobody", 24))


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        (NEW_TOKEN, False),
        (REGISTERED, True),
        (CONFIRMED, True),
        (ACTIVE, True),
        (INVALID, False),
        (EXPIRED_TOKEN, False),
    ],
)
async def test_activating_depends_on_the_status(store: NtfStore, status: TokenStatus, allowed: bool) -> None:
    owner = await filled(store, "a", status=status)
    assert await store.activate_token(owner.token_id, owner.code) == ([] if allowed else None)
    assert await store.token(owner.token_id) == replace(owner, status=ACTIVE if allowed else status)


async def test_S02_activating_removes_all_rivals_with_all_that_is_theirs(store: NtfStore) -> None:
    """S2, S8: and tells their queues, as a deletion does."""
    rivals = [
        await filled(store, name, f"{name}1", f"{name}2", device=device_token("same")) for name in ("r", "s")
    ]
    bystander = await filled(store, "bystander", "bystander1")
    owner = await filled(store, "a", "a1", device=device_token("same"), status=CONFIRMED)
    await store.add_notifications(ROUTER, [received("r1"), received("s2", 1), received("bystander1", 2)])
    queues = await store.activate_token(owner.token_id, owner.code)
    assert queues is not None
    assert sorted(each.notifier_id for each in queues) == sorted(
        queue(name).notifier_id for name in ("r1", "r2", "s1", "s2")
    )
    for rival in rivals:
        assert await store.token(rival.token_id) is None
        assert await registration(store, rival.device_token, rival.verify_key) is None
    for name in ("r1", "r2", "s1", "s2"):
        assert await store.subscription_of(queue(name)) is None
        assert await store.subscription(filler(("subscription", name), 24)) is None
    assert await store.token(owner.token_id) == replace(owner, status=ACTIVE)
    assert await store.subscription_of(queue("a1")) == subscription("a1", owner)
    assert await store.token(bystander.token_id) == bystander
    found = await accounting(store)
    assert (found.received, found.failed, found.pending) == (3, {"token_removed": 2}, 1)
    assert await store.counts() == StoreCounts(2, 2, 1)


async def test_activating_again_removes_a_rival_that_came_since(store: NtfStore) -> None:
    owner = await filled(store, "a", device=device_token("same"))
    rival = await filled(store, "r", "r1", device=device_token("same"))
    assert await store.activate_token(owner.token_id, owner.code) == [queue("r1")]
    assert await store.token(rival.token_id) is None


async def test_activation_refuses_an_outdated_code(store: NtfStore) -> None:
    owner = await filled(store, "a", status=REGISTERED, device=device_token("same"))
    rival = await filled(store, "r", device=device_token("same"))
    assert await store.activate_token(owner.token_id, b"c" * 32) is None
    assert await store.activate_token(filler("nobody", 24), owner.code) is None
    assert await store.token(owner.token_id) == owner
    assert await store.token(rival.token_id) == rival


async def test_invalidating_ends_what_is_pending(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2")
    await store.add_notifications(ROUTER, [received("a1"), received("a2", 1)])
    assert await store.invalidate_token(owner.token_id, owner.device_token, INVALID)
    assert not await store.invalidate_token(owner.token_id, owner.device_token, INVALID)
    assert await store.token(owner.token_id) == replace(owner, status=INVALID)
    assert await store.due_pushes([owner.token_id]) == []
    assert (await accounting(store)).failed == {"token_invalid": 2}
    assert await store.tokens_with_pending(None, 10) == []


async def test_a_refusal_of_another_device_token_changes_nothing(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    await store.add_notifications(ROUTER, [received("a1")])
    assert not await store.invalidate_token(owner.token_id, device_token("old"), INVALID)
    assert not await store.invalidate_token(filler("nobody", 24), owner.device_token, INVALID)
    assert await store.token(owner.token_id) == owner
    assert (await accounting(store)).pending == 1


async def test_N16_replacing_keeps_keys_subscriptions_and_pending_notifications(store: NtfStore) -> None:
    """N16: what waits is due when the new code was verified."""
    owner = await filled(store, "a", "a1", cron_minutes=20)
    await store.add_notifications(ROUTER, [received("a1")])
    new = device_token("new", PushProvider.APNS_DEV)
    assert await store.replace_token(owner.token_id, new, b"n" * 32, 99) is Replaced.DONE
    changed = replace(owner, device_token=new, code=b"n" * 32, status=REGISTERED, registered_at=99)
    assert await store.token(owner.token_id) == changed
    assert await registration(store, new, owner.verify_key) == changed
    assert await registration(store, owner.device_token, owner.verify_key) is None
    assert await store.subscription_of(queue("a1")) == subscription("a1", owner)
    assert await store.due_pushes([owner.token_id]) == []
    assert await store.activate_token(owner.token_id, owner.code) is None
    assert await store.activate_token(owner.token_id, b"n" * 32) == []
    assert len((await due(store, owner)).notifications) == 1


async def test_replacing_with_the_same_device_token_gives_a_new_code(store: NtfStore) -> None:
    owner = await filled(store, "a")
    assert await store.replace_token(owner.token_id, owner.device_token, b"n" * 32, 99) is Replaced.DONE
    found = await registration(store, owner.device_token, owner.verify_key)
    assert found == replace(owner, code=b"n" * 32, status=REGISTERED, registered_at=99)


async def test_replacing_with_a_taken_registration_leaves_both_as_they_were(store: NtfStore) -> None:
    owner = await filled(store, "a")
    other = await filled(store, "b", verify_key=owner.verify_key)
    assert await store.replace_token(owner.token_id, other.device_token, b"n" * 32, 99) is Replaced.TAKEN
    assert await store.token(owner.token_id) == owner
    assert await store.token(other.token_id) == other
    assert await registration(store, owner.device_token, owner.verify_key) == owner
    nobody = filler("nobody", 24)
    assert await store.replace_token(nobody, device_token("x"), b"n" * 32, 99) is Replaced.MISSING


async def test_S06_only_the_registration_of_this_very_token_is_removed(store: NtfStore) -> None:
    """S6: somebody else has registered what this token had before."""
    owner = await filled(store, "a")
    await store.replace_token(owner.token_id, device_token("new"), b"n" * 32, 99)
    heir = await filled(store, "b", device=owner.device_token, verify_key=owner.verify_key)
    assert await store.delete_token(owner.token_id) == []
    assert await registration(store, heir.device_token, heir.verify_key) == heir
    assert await registration(store, device_token("new"), owner.verify_key) is None


async def test_S05_a_deleted_registration_can_be_made_again(store: NtfStore) -> None:
    """S5: nothing of it is left, whether others have the device token or not."""
    owner = await filled(store, "a", device=device_token("same"))
    other = await filled(store, "b", device=device_token("same"))
    await store.delete_token(owner.token_id)
    assert await registration(store, owner.device_token, owner.verify_key) is None
    assert await registration(store, other.device_token, other.verify_key) == other
    assert await add_token(store, owner)
    await store.delete_token(owner.token_id)
    await store.delete_token(other.token_id)
    assert await add_token(store, replace(owner, token_id=filler("x", 24)))


async def test_S08_deleting_a_token_tells_its_queues(store: NtfStore) -> None:
    """S8: so that the router can leave them."""
    owner = await filled(store, "a", "a1", "a2")
    other = await filled(store, "b", "b1")
    await store.add_notifications(ROUTER, [received("a1"), received("b1", 1)])
    queues = await store.delete_token(owner.token_id)
    assert queues is not None
    assert {each.notifier_id for each in queues} == {queue("a1").notifier_id, queue("a2").notifier_id}
    assert await store.token(owner.token_id) is None
    assert await store.subscription_of(queue("a1")) is None
    assert await store.token(other.token_id) == other
    found = await accounting(store)
    assert (found.failed, found.pending) == ({"token_removed": 1}, 1)


async def test_S07_deleting_an_unknown_token_is_told_apart(store: NtfStore) -> None:
    """S7: the router answers AUTH to it, as the reference's database does; nothing is there to unsubscribe."""
    assert await store.delete_token(filler("nobody", 24)) is None


async def cron_ids(store: NtfStore, now: int, page: int = 1000) -> list[Sequence[TokenRecord]]:
    return [tokens async for tokens in store.cron_due(now, page)]


async def test_periodic_pushes_are_due_also_if_there_never_was_one(store: NtfStore) -> None:
    now = 1_700_000_000
    never = await filled(store, "never", cron_minutes=20)
    await filled(store, "none")
    await filled(store, "registered", cron_minutes=20, status=REGISTERED)
    past = await filled(store, "past", cron_minutes=20, cron_sent_at=now - 1201)
    just = await filled(store, "just", cron_minutes=20, cron_sent_at=now - 1200)
    [page] = await cron_ids(store, now)
    assert {each.token_id for each in page} == {never.token_id, past.token_id}
    assert page[0] in (never, past)
    await store.cron_sent([never.token_id, past.token_id, filler("nobody", 24)], now)
    assert await cron_ids(store, now) == []
    assert [each.token_id for [each] in await cron_ids(store, now + 1)] == [just.token_id]
    changed = await store.token(never.token_id)
    assert changed == replace(never, cron_sent_at=now)


async def test_periodic_pushes_come_in_pages(store: NtfStore) -> None:
    owners = [await filled(store, number, cron_minutes=20) for number in range(5)]
    pages = await cron_ids(store, 1_700_000_000, 2)
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {each.token_id for page in pages for each in page} == {owner.token_id for owner in owners}


async def test_the_interval_is_set_and_taken_away(store: NtfStore) -> None:
    owner = await filled(store, "a")
    assert await store.set_cron(owner.token_id, 60, 7)
    assert await store.token(owner.token_id) == replace(owner, cron_minutes=60, cron_sent_at=7)
    assert await store.set_cron(owner.token_id, 0, 8)
    assert await store.token(owner.token_id) == replace(owner, cron_sent_at=8)
    assert not await store.set_cron(filler("nobody", 24), 60, 9)


async def test_the_first_periodic_push_is_due_one_period_after_it_was_set(store: NtfStore) -> None:
    """Issue 18, row 1: it was due at once."""
    now = 1_700_000_000
    owner = await filled(store, "a")
    assert await store.set_cron(owner.token_id, 20, now)
    assert await cron_ids(store, now + 1) == []
    assert await cron_ids(store, now + 1200) == []
    assert [each.token_id for [each] in await cron_ids(store, now + 1201)] == [owner.token_id]
    assert await store.set_cron(owner.token_id, 20, now + 1201)  # the device is awake
    assert await cron_ids(store, now + 2401) == []
    assert len(await cron_ids(store, now + 2402)) == 1


async def test_a_periodic_push_is_due_one_period_after_the_last_message(store: NtfStore) -> None:
    now = 1_700_000_000
    owner = await filled(store, "a", "a1", "a2")
    assert await store.set_cron(owner.token_id, 20, now)
    await store.add_notifications(
        ROUTER, [received("a1", 1, at=now + 600.5), received("a2", 2, at=now + 500.0)]
    )
    assert await cron_ids(store, now + 10_000) == []  # messages wait to be pushed
    await store.settle([settled(owner, "a1", 1), settled(owner, "a2", 2)])
    assert await cron_ids(store, now + 1800) == []
    assert [each.token_id for [each] in await cron_ids(store, now + 1801)] == [owner.token_id]
    await store.cron_sent([owner.token_id], now + 700)
    assert await cron_ids(store, now + 1900) == []
    assert len(await cron_ids(store, now + 1901)) == 1


@pytest.mark.parametrize("how", ["SDEL", "packet", "DELD"])
async def test_a_message_delays_the_periodic_push_also_if_its_subscription_is_deleted(
    store: NtfStore, how: str
) -> None:
    """Issue 18, row 1: its notification went with its subscription, and the period began with an older one."""
    now = 1_700_000_000
    owner = await filled(store, "a", "old", *(["new"] if how == "SDEL" else []))
    assert await store.set_cron(owner.token_id, 20, now)
    if how != "SDEL":
        assert await store.associate(owner.token_id, queue("new"), now) is Associated.ADDED
    for nonce, (name, after) in enumerate((("old", 100.5), ("new", 600.5))):
        await store.add_notifications(ROUTER, [received(name, nonce, at=now + after)])
        [waiting] = [each for each in (await due(store, owner)).notifications if each.pending]
        assert isinstance(waiting, PendingNotification)
        outcome = msgspec.structs.replace(
            settled(owner, name, nonce), subscription_id=waiting.subscription_id
        )
        await store.settle([outcome])
    if how == "SDEL":
        assert await store.delete_subscription(filler(("subscription", "new"), 24))
    elif how == "packet":
        assert not await store.dissociate(filler("nobody", 24), queue("new"), now)
        assert await store.dissociate(owner.token_id, queue("new"), now)
    else:
        assert await store.note_deleted(ROUTER, [queue("new").notifier_id], 5) == 1
        assert await store.remove_deleted(6) == [queue("new")]
    assert await store.subscription_of(queue("new")) is None
    assert await cron_ids(store, now + 1800) == []
    assert [each.token_id for [each] in await cron_ids(store, now + 1801)] == [owner.token_id]
    assert await store.delete_subscription(
        filler(("subscription", "old"), 24)
    )  # an older one changes nothing
    assert await cron_ids(store, now + 1800) == []
    assert len(await cron_ids(store, now + 1801)) == 1


# Subscriptions


async def test_a_subscription_is_found_by_id_and_by_queue(store: NtfStore) -> None:
    owner = await filled(store, "a")
    first, second = (
        subscription("q", owner),
        subscription("q", owner, OTHER_ROUTER, subscription_id=b"i" * 24),
    )
    assert await store.add_subscription(first)
    assert await store.add_subscription(second)
    assert await store.subscription(first.subscription_id) == (first, owner)
    assert await store.subscription(second.subscription_id) == (second, owner)
    assert await store.subscription_of(first.queue) == first
    assert await store.subscription_of(second.queue) == second
    assert await store.subscription(filler("nobody", 24)) is None
    assert await store.subscription_of(queue("nobody")) is None
    assert await store.other_routers_of(owner.token_id, OTHER_ROUTER) == 1
    assert await store.other_routers_of(owner.token_id, replace(OTHER_ROUTER, port="9999")) == 2
    assert await store.other_routers_of(filler("nobody", 24), OTHER_ROUTER) == 0


@pytest.mark.parametrize("key", [Ed448PrivateKey(bytes(57)).der, X25519PrivateKey(b"k" * 32).der])
@pytest.mark.parametrize("notifier_id", [b"short", b"l" * 60, b"\xff" * 24])
async def test_unusual_ids_and_keys_are_kept(store: NtfStore, key: bytes, notifier_id: bytes) -> None:
    owner = await filled(store, "a")
    odd = NotifierQueue(ROUTER, notifier_id)
    added = subscription("a1", owner, queue=odd, notifier_key=key)
    assert await store.add_subscription(added)
    assert await store.subscription_of(odd) == added
    page = await store.queues_to_subscribe(ROUTER, WantedPage(None, 10, with_associated=False))
    assert page.queues == ((notifier_id, key),)
    assert await store.delete_subscription(added.subscription_id)
    assert await store.subscription_of(odd) is None


async def test_S09_a_conflicting_subscription_is_refused(store: NtfStore) -> None:
    """S9: by queue, by id and without a token; nothing is overwritten."""
    owner = await filled(store, "a", "a1")
    other = await filled(store, "b")
    same_queue = subscription("a1", other, subscription_id=filler("x", 24))
    same_id = subscription("a2", owner, subscription_id=subscription("a1", owner).subscription_id)
    assert not await store.add_subscription(same_queue)
    assert not await store.add_subscription(same_id)
    assert not await store.add_subscription(subscription("c1", token("nobody")))
    assert await store.subscription_of(queue("a1")) == subscription("a1", owner)
    assert await store.subscription_of(queue("a2")) is None
    assert await store.subscription_of(queue("c1")) is None


async def test_S10_S12_a_deleted_subscription_is_gone_everywhere(store: NtfStore) -> None:
    """S10, S12: by id, by queue and by token, also the last one."""
    owner = await filled(store, "a", "a1", "a2")
    await store.add_notifications(ROUTER, [received("a1"), received("a2", 1)])
    gone = subscription("a1", owner)
    assert await store.delete_subscription(gone.subscription_id)
    assert not await store.delete_subscription(gone.subscription_id)
    assert await store.subscription(gone.subscription_id) is None
    assert await store.subscription_of(gone.queue) is None
    found = await accounting(store)
    assert (found.failed, found.pending) == ({"subscription_removed": 1}, 1)
    [left] = (await due(store, owner)).notifications
    assert left == pending(received("a2", 1), subscription("a2", owner))
    assert await store.add_subscription(gone)
    assert await store.delete_subscription(gone.subscription_id)
    await store.delete_subscription(subscription("a2", owner).subscription_id)
    assert await store.delete_token(owner.token_id) == []
    assert await store.counts() == StoreCounts(0, 0, 0)


@pytest.mark.parametrize("status", [*S, SubscriptionFailed("SMP error CMD {cmdErr = PROHIBITED}")])
async def test_statuses_are_set(store: NtfStore, status: SubscriptionStatus) -> None:
    await filled(store, "a", "a1", "a2", "a3")
    await store.subscribed(ROUTER, [queue("a2").notifier_id], SERVICE)
    wanted = [(queue(name).notifier_id, status) for name in ("a1", "a2", "nobody")]
    assert await store.set_statuses(ROUTER, wanted) == (1 if status is S.NEW else 2)
    assert await store.set_statuses(ROUTER, wanted) == 0
    assert await store.set_statuses(OTHER_ROUTER, wanted) == 0
    assert await status_of(store, "a1") == status
    found = await store.subscription_of(queue("a2"))
    assert found is not None
    assert (found.status, found.service_associated) == (status, False)
    assert await status_of(store, "a3") is S.NEW
    used = await store.used_router(ROUTER)
    assert used is not None
    assert used.associated_count == 0


async def test_the_last_of_several_statuses_of_one_queue_counts(store: NtfStore) -> None:
    await filled(store, "a", "a1")
    notifier_id = queue("a1").notifier_id
    await store.set_statuses(ROUTER, [(notifier_id, S.END), (notifier_id, S.DELETED)])
    assert await status_of(store, "a1") is S.DELETED


async def test_subscribed_queues_are_active_and_perhaps_associated(store: NtfStore) -> None:
    """S11: the service of a router is set with its queues, and not unset by one that is subscribed without it."""
    owner = await filled(store, "a", "a1", "a2", "a3")
    ids = [queue(name).notifier_id for name in ("a1", "a2", "a3")]
    assert await store.subscribed(ROUTER, ids[:1], None) == 1
    assert await store.subscribed(ROUTER, [*ids[1:], ids[1], b"nobody"], SERVICE) == 2
    assert await store.subscribed(ROUTER, ids[1:], SERVICE) == 0
    assert await store.subscription_of(queue("a1")) == subscription("a1", owner, status=S.ACTIVE)
    associated = subscription("a2", owner, status=S.ACTIVE, service_associated=True)
    assert await store.subscription_of(queue("a2")) == associated
    combined = ids_hash_bytes(reduce(xor, map(id_hash, ids[1:])))
    used = UsedRouter(ROUTER, SERVICE, 2, combined, 1)
    assert await store.used_router(ROUTER) == used
    assert await store.used_routers() == [used]
    assert await store.subscribed(ROUTER, ids[1:2], None) == 1
    after = await store.used_router(ROUTER)
    assert after == UsedRouter(ROUTER, SERVICE, 1, ids_hash_bytes(id_hash(ids[2])), 2)


async def test_a_router_is_untried_until_one_of_its_queues_was_subscribed(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2")
    assert await store.used_router(ROUTER) == UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 2, untried=True)
    await store.subscribed(ROUTER, [queue("a1").notifier_id], None)
    tried = UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 2)
    assert await store.used_routers() == [tried]
    await store.disconnected(ROUTER)
    await store.invalidate_token(owner.token_id, owner.device_token, INVALID)
    assert await store.used_router(ROUTER) == tried


async def test_an_untried_router_is_needed_by_active_tokens_only(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    await store.invalidate_token(owner.token_id, owner.device_token, INVALID)
    unneeded = UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 1, untried=True, needed=False)
    assert await store.used_routers() == [unneeded]
    assert await store.used_router(ROUTER) == unneeded
    other = token("b")
    await add_token(store, other)
    await store.add_subscription(subscription("b1", other))
    assert await store.used_routers() == [UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 2, untried=True)]


async def test_routers_that_are_worth_a_connection_are_found_without_counting(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    await store.add_subscription(subscription("a2", owner, OTHER_ROUTER))
    await store.subscribed(OTHER_ROUTER, [queue("a2", OTHER_ROUTER).notifier_id], None)
    found = {each.location: each for each in await store.wanted_routers()}
    assert found == {
        ROUTER: WantedRouter(ROUTER, (), untried=True),
        OTHER_ROUTER: WantedRouter(OTHER_ROUTER),
    }
    assert await store.wanted_routers([ROUTER]) == [found[ROUTER]]
    assert await store.wanted_routers([]) == []
    await store.invalidate_token(owner.token_id, owner.device_token, INVALID)
    assert await store.wanted_routers() == [found[OTHER_ROUTER]]
    await store.set_statuses(OTHER_ROUTER, [(queue("a2", OTHER_ROUTER).notifier_id, S.END)])
    assert await store.wanted_routers() == []


async def test_the_addresses_of_one_router_are_found_together(store: NtfStore) -> None:
    moved = replace(ROUTER, hosts=("moved.example.com",))
    owner = await filled(store, "a", "a1", "a2")
    await store.add_subscription(subscription("b", owner, moved))
    for among in (None, [ROUTER]):
        [found] = await store.wanted_routers(among)
        assert found.untried
        assert {found.location, *found.other_addresses} == {ROUTER, moved}


async def test_whether_queues_are_associated_is_found_without_counting(store: NtfStore) -> None:
    await filled(store, "a", "a1", "a2")
    assert await store.associations(ROUTER) == (None, False)
    await store.subscribed(ROUTER, [queue("a1").notifier_id], SERVICE)
    assert await store.associations(ROUTER) == (SERVICE, True)
    await store.subscribed(ROUTER, [queue("a1").notifier_id], None)
    assert await store.associations(ROUTER) == (SERVICE, False)
    assert await store.associations(OTHER_ROUTER) == (None, False)


async def test_queues_that_are_named_first_are_on_the_first_page_and_all_come_once(store: NtfStore) -> None:
    names = [f"q{number}" for number in range(9)]
    await filled(store, "a", *names)
    first = [queue(name).notifier_id for name in ("q7", "q2")]
    found: list[bytes] = []
    cursor: bytes | None = None
    while True:
        page = await store.queues_to_subscribe(
            ROUTER, WantedPage(cursor, 3, with_associated=False, first=first)
        )
        found += [notifier_id for notifier_id, _ in page.queues]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == sorted(queue(name).notifier_id for name in names)
    if isinstance(store, NtfPostgresStore):
        assert set(found[:2]) == set(first)


async def test_facts_for_a_new_subscription_are_read_in_one_step(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    other = token("b")
    await add_token(store, other)
    await store.add_subscription(subscription("a2", owner, OTHER_ROUTER))
    assert await store.queue_facts(owner.token_id, queue("new")) == (owner, None, 1)
    assert await store.queue_facts(owner.token_id, queue("a1")) == (owner, subscription("a1", owner), 1)
    assert await store.queue_facts(other.token_id, queue("a1")) == (other, subscription("a1", owner), 0)
    assert await store.queue_facts(filler("nobody", 24), queue("a1")) == (None, subscription("a1", owner), 0)
    asked = [(each.token_id, queue(name)) for each in (owner, other) for name in ("a1", "new")]
    together = await asyncio.gather(*(store.queue_facts(*each) for each in asked))
    assert together == [await store.queue_facts(*each) for each in asked]


async def test_a_registration_is_made_in_one_step(store: NtfStore) -> None:
    """TNEW: known, taken, too many, or made; old ones that nobody verified make room."""
    known = replace(token("a"), registered_at=2000)
    assert await store.register(known, 1000, 5) is Registered.DONE
    assert await store.register(replace(known, token_id=filler("other id", 24)), 1000, 5) == known
    same_id = replace(token("c"), token_id=known.token_id)
    assert await store.register(same_id, 1000, 5) is Registered.TAKEN
    shared = device_token("shared")
    rivals = [
        replace(token(f"r{number}"), device_token=shared, status=REGISTERED, registered_at=number)
        for number in (500, 600, 1500, 1600)
    ]
    for each in rivals:
        await add_token(store, each)
    late = replace(token("late"), device_token=shared, status=REGISTERED, registered_at=2000)
    assert await store.register(late, 1000, 2) is Registered.QUOTA
    assert [await store.token(each.token_id) is None for each in rivals] == [True, True, False, False]
    assert await store.register(late, 1000, 3) is Registered.DONE
    assert await store.token(late.token_id) == late


async def test_registrations_end_at_the_limit_of_all_tokens(store: NtfStore) -> None:
    await filled(store, "a")
    await store.limit_to(RowLimits(1, 10, 10))
    with pytest.raises(StoreFull):
        await store.register(token("b"), 0, 5)
    known = token("a")
    assert await store.register(known, 0, 5) == known


async def test_new_queues_of_a_token_are_found(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2")
    await filled(store, "b", "b1")
    await store.subscribed(ROUTER, [queue("a1").notifier_id], None)
    expected = subscription("a2", owner)
    assert await store.new_queues_of(owner.token_id) == [(expected.queue, expected.notifier_key)]
    assert await store.new_queues_of(b"nobody") == []


async def test_an_unknown_router_is_not_used(store: NtfStore) -> None:
    assert await store.used_routers() == []
    assert await store.used_router(ROUTER) is None
    assert await store.subscribed(ROUTER, [b"x"], SERVICE) == 0
    assert await store.disconnected(ROUTER) == 0
    assert await store.forget_service(ROUTER) == 0
    page = await store.queues_to_subscribe(ROUTER, WantedPage(None, 10, with_associated=True))
    assert (page.queues, page.cursor) == ((), None)


async def test_a_router_without_wanted_queues_is_not_used(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    await store.add_subscription(subscription("a2", owner, OTHER_ROUTER))
    await store.set_statuses(ROUTER, [(queue("a1").notifier_id, S.END)])
    assert [used.location for used in await store.used_routers()] == [OTHER_ROUTER]
    assert await store.used_router(ROUTER) == UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 0)


async def test_a_lost_connection_makes_queues_inactive(store: NtfStore) -> None:
    owner = await filled(store, "a", "new")
    statuses: dict[str, SubscriptionStatus] = {"active": S.ACTIVE, "pending": S.PENDING, "service": S.SERVICE}
    for name, status in statuses.items():
        await store.add_subscription(subscription(name, owner, status=status))
    for number, end in enumerate(ENDS):
        await store.add_subscription(subscription(number, owner, status=end))
    await store.add_subscription(subscription("ours", owner))
    await store.subscribed(ROUTER, [queue("ours").notifier_id], SERVICE)
    await store.add_subscription(subscription("elsewhere", owner, OTHER_ROUTER, status=S.ACTIVE))
    assert await store.disconnected(ROUTER) == 2
    for name, status in statuses.items():
        expected = S.INACTIVE if status in (S.ACTIVE, S.PENDING) else status
        assert await status_of(store, name) is expected
    assert await status_of(store, "ours") is S.ACTIVE
    assert await status_of(store, "elsewhere") is S.ACTIVE
    for number, end in enumerate(ENDS):
        assert await status_of(store, number) == end
    used = await store.used_router(ROUTER)
    assert used is not None
    assert (used.service_id, used.associated_count) == (SERVICE, 1)


async def test_S11_a_void_service_is_forgotten_and_ends_are_not_revived(store: NtfStore) -> None:
    """S11: the same in every store. Appendix B 11 of ntf.md: the reference makes ends INACTIVE."""
    owner = await filled(store, "a", "ours", "alone")
    await store.subscribed(ROUTER, [queue("ours").notifier_id], SERVICE)
    await store.subscribed(ROUTER, [queue("alone").notifier_id], None)
    for number, end in enumerate((S.END, S.DELETED, S.AUTH)):
        added = subscription(number, owner, status=end, service_associated=True)
        await store.add_subscription(added)
    assert await store.forget_service(ROUTER) == 4
    assert await store.subscription_of(queue("ours")) == subscription("ours", owner, status=S.INACTIVE)
    assert await status_of(store, "alone") is S.ACTIVE
    for number, end in enumerate((S.END, S.DELETED, S.AUTH)):
        assert await store.subscription_of(queue(number)) == subscription(number, owner, status=end)
    assert await store.used_router(ROUTER) == UsedRouter(ROUTER, None, 0, NO_IDS_HASH, 2)
    assert await store.forget_service(ROUTER) == 0


async def test_pages_have_all_that_is_wanted_and_mark_it_pending(store: NtfStore) -> None:
    owner = await filled(store, "a")
    wanted = (S.NEW, S.PENDING, S.ACTIVE, S.INACTIVE, S.SERVICE)
    for number, status in enumerate((*wanted, *ENDS)):
        await store.add_subscription(subscription(number, owner, status=status))
    await store.add_subscription(subscription("ours", owner, status=S.ACTIVE, service_associated=True))
    await store.add_subscription(subscription("elsewhere", owner, OTHER_ROUTER))
    expected = {queue(number).notifier_id for number in range(len(wanted))}
    found = await all_pages(store, 2, with_associated=False)
    assert len(found) == len(wanted)
    assert set(found) == expected
    assert await status_of(store, 2) is S.PENDING
    found = await all_pages(store, 3, with_associated=True)
    assert len(found) == len(wanted) + 1
    assert set(found) == {*expected, queue("ours").notifier_id}
    ours = await store.subscription_of(queue("ours"))
    assert ours is not None
    assert ours.service_associated


async def test_a_page_has_the_keys(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    page = await store.queues_to_subscribe(ROUTER, WantedPage(None, 5, with_associated=False))
    added = subscription("a1", owner)
    assert page.queues == ((added.queue.notifier_id, added.notifier_key),)


@pytest.mark.parametrize("limit", [1, 3, 16, 17])
async def test_no_queue_is_missed_if_others_are_deleted_between_pages(store: NtfStore, limit: int) -> None:
    owner = await filled(store, "a", *range(70))
    expected = {queue(number).notifier_id for number in range(70)}
    doomed = iter(range(0, 70, 2))
    found: set[bytes] = set()
    cursor = None
    while True:
        page = await store.queues_to_subscribe(ROUTER, WantedPage(cursor, limit, with_associated=False))
        found |= {notifier_id for notifier_id, _ in page.queues}
        if (cursor := page.cursor) is None:
            break
        for number in (next(doomed, None), next(doomed, None)):
            if number is not None:
                assert await store.delete_subscription(subscription(number, owner).subscription_id)
                expected.discard(queue(number).notifier_id)
    assert found >= expected


# Notifications


async def test_a_notification_is_recorded_and_due(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    seen: list[Sequence[Recorded | NotRecorded]] = []
    came = received("a1", at=1234.5625)
    results = await store.add_notifications(ROUTER, [came], seen.append)
    assert results == [Recorded(owner.token_id, owner.device_token.provider, None)]
    assert [list(each) for each in seen] == [results]
    push = await due(store, owner)
    assert push.token == owner
    assert push.notifications == (pending(came, subscription("a1", owner)),)
    assert await store.tokens_with_pending(None, 10) == [owner.token_id]
    assert await accounting(store) == Accounting(received=1, pending=1)
    assert await store.counts() == StoreCounts(1, 1, 1)


@pytest.mark.parametrize("status", [REGISTERED, CONFIRMED], ids=["registered", "confirmed"])
async def test_what_comes_while_a_token_waits_for_its_code_is_pushed_when_it_is_active(
    store: NtfStore, status: TokenStatus
) -> None:
    owner = await filled(store, "a", "a1", status=status)
    [result] = await store.add_notifications(ROUTER, [received("a1")])
    assert isinstance(result, Recorded)
    assert await store.due_pushes([owner.token_id]) == []
    assert await accounting(store) == Accounting(received=1, pending=1)
    assert await store.activate_token(owner.token_id, owner.code) == []
    assert len((await due(store, owner)).notifications) == 1


async def test_N22_S03_nothing_is_recorded_for_what_is_unknown_or_invalid(store: NtfStore) -> None:
    """S3, N22: the token is looked at when the notification is written."""
    await filled(store, "a", "a1", status=EXPIRED_TOKEN)
    await filled(store, "b", "b1", status=INVALID)
    owner = await filled(store, "c", "c1")
    batch = [received("a1"), received("b1", 1), received("nobody", 2), received("c1", 3)]
    results = await store.add_notifications(ROUTER, batch)
    assert results[:3] == [NotRecorded.UNKNOWN_QUEUE] * 3
    assert isinstance(results[3], Recorded)
    assert await store.add_notifications(OTHER_ROUTER, batch) == [NotRecorded.UNKNOWN_QUEUE] * 4
    await store.delete_token(owner.token_id)
    assert await store.add_notifications(ROUTER, [received("c1", 4)]) == [NotRecorded.UNKNOWN_QUEUE]
    assert (await accounting(store)).received == 1


async def test_a_repeated_nonce_is_a_duplicate(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    await store.add_notifications(ROUTER, [received("a1", 1)])
    assert await store.add_notifications(ROUTER, [received("a1", 1, at=2000)]) == [NotRecorded.DUPLICATE]
    await store.settle([settled(owner, "a1", 1)])
    assert await store.add_notifications(ROUTER, [received("a1", 1, at=3000)]) == [NotRecorded.DUPLICATE]
    assert await store.due_pushes([owner.token_id]) == []
    assert await accounting(store) == Accounting(received=1, accepted=1)


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_an_smp_router_repeats_the_newest_notification_stays_the_last(
    store: NtfStore, seed: int
) -> None:
    """In any blocks: an SMP router sends those of a queue in order, but not always in one block."""
    chance = random.Random(seed)
    owner = await filled(store, "a", "a1")
    numbers = list(range(chance.randint(2, 12)))
    before = numbers[: chance.choice([chance.randint(1, len(numbers)), len(numbers)])]
    for number in before:
        await store.add_notifications(ROUTER, [received("a1", number)])
    block, repeated = 0, list[ReceivedNotification]()
    for number in numbers[chance.choice(before) :]:
        block += chance.random() < 0.3
        repeated.append(received("a1", number)._replace(block=block))
    while repeated:
        together = chance.choice([chance.randint(1, len(repeated)), len(repeated)])
        await store.add_notifications(ROUTER, repeated[:together])
        del repeated[:together]
    assert await pending_nonces(store, owner) == [received("a1", numbers[-1]).nonce]


async def test_S04_a_newer_notification_of_a_queue_takes_the_place_of_the_older(store: NtfStore) -> None:
    """S4: there is one for each queue."""
    owner = await filled(store, "a", "a1")
    await store.add_notifications(ROUTER, [received("a1", 1)])
    [result] = await store.add_notifications(ROUTER, [received("a1", 2, at=2000)])
    assert isinstance(result, Recorded)
    assert result.superseded == received("a1", 1).nonce
    await store.settle([settled(owner, "a1", 1)])
    assert await pending_nonces(store, owner) == [received("a1", 2).nonce]
    assert await accounting(store) == Accounting(received=2, superseded=1, pending=1)
    await store.settle([settled(owner, "a1", 2, "too_large")])
    [result] = await store.add_notifications(ROUTER, [received("a1", 3, at=3000)])
    assert isinstance(result, Recorded)
    assert result.superseded is None
    found = await accounting(store)
    assert found == Accounting(received=3, superseded=1, failed={"too_large": 1}, pending=1)


async def test_several_of_one_queue_in_one_batch(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2")
    batch = [
        received("a1", 1, at=1.0),
        received("a2", 2, at=2.0),
        received("a1", 1, at=3.0),
        received("a1", 3, at=4.0),
        received("a1", 4, at=5.0),
    ]
    results = await store.add_notifications(ROUTER, batch)
    provider = owner.device_token.provider
    assert results == [
        Recorded(owner.token_id, provider, None),
        Recorded(owner.token_id, provider, None),
        NotRecorded.DUPLICATE,
        Recorded(owner.token_id, provider, received("a1", 1).nonce, 1.0),
        Recorded(owner.token_id, provider, received("a1", 3).nonce, 4.0),
    ]
    assert await pending_nonces(store, owner) == [received("a2", 2).nonce, received("a1", 4).nonce]
    assert await accounting(store) == Accounting(received=4, superseded=2, pending=2)


async def test_more_than_six_pending_queues_are_all_kept(store: NtfStore) -> None:
    """S4: until they have an outcome; then the store keeps no more than a push carries."""
    owner = await filled(store, "a", *range(10))
    for number in range(10):
        await store.add_notifications(ROUTER, [received(number, number, at=100.0 + number)])
    nonces = [received(number, number).nonce for number in range(10)]
    assert await pending_nonces(store, owner) == nonces
    await store.settle([settled(owner, number, number) for number in range(9)])
    push = await due(store, owner)
    assert [each.nonce for each in push.notifications] == nonces[4:]
    assert [each.pending for each in push.notifications] == [False] * 5 + [True]
    assert (await store.counts()).notifications == 6


async def test_what_is_due_has_the_settled_ones_too_oldest_first(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2", "a3")
    times = ("a1", 1, 30.0), ("a2", 2, 10.5), ("a3", 3, 40.0)
    for name, nonce, at in sorted(times, key=lambda each: each[2]):
        await store.add_notifications(ROUTER, [received(name, nonce, at=at)])
    await store.settle([settled(owner, "a2", 2)])
    push = await due(store, owner)
    newer = [pending(received(name, nonce, at=at), subscription(name, owner)) for name, nonce, at in times]
    assert push.notifications == (LastNotification(10.5, newer[1].nonce, newer[1].text), newer[0], newer[2])


async def test_a_settled_one_is_not_settled_again(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1")
    other = await filled(store, "b", "b1")
    await store.add_notifications(ROUTER, [received("a1", 1), received("b1", 2)])
    ends = [settled(owner, "a1", 1), settled(owner, "a1", 1, "refused"), settled(owner, "a1", 7)]
    await store.settle(
        [*ends, settled(owner, "nobody", 1), settled(other, "a1", 1), settled(token("x"), "b1", 2)]
    )
    await store.settle(ends)
    assert await accounting(store) == Accounting(received=2, accepted=1, pending=1)
    assert await store.tokens_with_pending(None, 5) == [other.token_id]


async def test_tokens_with_pending_come_in_pages(store: NtfStore) -> None:
    owners = [await filled(store, number, number) for number in range(5)]
    await store.add_notifications(ROUTER, [received(number, number) for number in range(5)])
    await store.settle([settled(owners[0], 0, 0)])
    expected = sorted(owner.token_id for owner in owners[1:])
    first = await store.tokens_with_pending(None, 3)
    second = await store.tokens_with_pending(first[-1], 3)
    assert [*first, *second] == expected
    assert await store.tokens_with_pending(second[-1], 3) == []


async def test_what_waits_too_long_expires(store: NtfStore) -> None:
    owner = await filled(store, "a", "a1", "a2", "a3")
    batch = [received("a1", 1, at=10.0), received("a2", 2, at=20.0), received("a3", 3, at=5.0)]
    await store.add_notifications(ROUTER, batch)
    await store.settle([settled(owner, "a3", 3)])
    assert await store.expire_pending(20.0) == 1
    assert await store.expire_pending(20.0) == 0
    assert await pending_nonces(store, owner) == [received("a2", 2).nonce]
    assert await accounting(store) == Accounting(received=3, accepted=1, failed={"expired": 1}, pending=1)


async def test_due_pushes_are_only_for_active_tokens_with_something_pending(store: NtfStore) -> None:
    waiting = await filled(store, "a", "a1")
    idle = await filled(store, "b", "b1")
    replaced = await filled(store, "c", "c1")
    await store.add_notifications(ROUTER, [received("a1", 1), received("c1", 2)])
    await store.replace_token(replaced.token_id, device_token("new"), b"n" * 32, 1)
    asked = [idle.token_id, waiting.token_id, replaced.token_id, filler("nobody", 24)]
    assert [push.token.token_id for push in await store.due_pushes(asked)] == [waiting.token_id]
    assert await store.due_pushes([]) == []


async def test_nothing_is_recorded_of_an_empty_batch(store: NtfStore) -> None:
    assert await store.add_notifications(ROUTER, []) == []
    await store.settle([])
    await store.cron_sent([], 5)
    assert await store.set_statuses(ROUTER, []) == 0
    await store.check()
    await store.maintain()


async def test_what_ends_otherwise_than_by_settling_is_told(store: NtfStore) -> None:
    """For the event log: every notification has an end there too."""
    owner = await filled(store, "a", "a1", "a2", "a3", "a4")
    other = await filled(store, "b", "b1")
    told: list[SettledNotification] = []
    store.report_settled_to(told.extend)
    await store.add_notifications(
        ROUTER, [received(f"a{number}", number, at=float(number)) for number in (1, 2, 3, 4)]
    )
    await store.add_notifications(ROUTER, [received("b1", 9, at=9.0)])

    def ended(owner: TokenRecord, name: str, nonce: int, outcome: str) -> SettledNotification:
        provider, ids = owner.device_token.provider, subscription(name, owner)
        return SettledNotification(
            owner.token_id,
            ids.subscription_id,
            received(name, nonce).nonce,
            outcome,
            queue(name),
            provider,
            float(nonce),
        )

    await store.settle([settled(owner, "a4", 4)])
    assert told == []
    assert await store.delete_subscription(subscription("a1", owner).subscription_id)
    assert told == [ended(owner, "a1", 1, "subscription_removed")]
    assert await store.expire_pending(2.5) == 1
    assert told[1:] == [ended(owner, "a2", 2, "expired")]
    assert await store.invalidate_token(
        owner.token_id, owner.device_token, TokenStatus(TokenState.INVALID, InvalidReason.BAD)
    )
    assert told[2:] == [ended(owner, "a3", 3, "token_invalid")]
    assert await store.delete_token(other.token_id) is not None
    assert told[3:] == [ended(other, "b1", 9, "token_removed")]
    found = await accounting(store)
    assert (found.received, found.accepted, sum(found.failed.values())) == (5, 1, 4)


async def test_certificates_of_our_services_are_kept_by_router(store: NtfStore) -> None:
    first, second = (new_service_credentials(datetime.now(UTC)) for _ in range(2))
    assert await store.service_credentials(ROUTER) is None
    await store.set_service_credentials(ROUTER, first)
    assert await store.service_credentials(ROUTER) is None  # a router without queues has none
    owner = await filled(store, "a", "a1")
    await store.set_service_credentials(ROUTER, first)
    assert await store.service_credentials(replace(ROUTER, hosts=("another.example.com",))) == first
    assert await store.service_credentials(OTHER_ROUTER) is None
    await store.subscribed(ROUTER, [queue("a1").notifier_id], SERVICE)
    await store.forget_service(ROUTER)
    assert await store.service_credentials(ROUTER) == first
    await store.set_service_credentials(ROUTER, second)
    assert await store.service_credentials(ROUTER) == second
    await store.set_service_credentials(ROUTER, None)
    assert await store.service_credentials(ROUTER) is None
    assert await store.subscription_of(queue("a1")) == subscription("a1", owner, status=S.INACTIVE)
