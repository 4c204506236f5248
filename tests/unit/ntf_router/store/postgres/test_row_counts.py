"""Numbers of rows that are kept, when the database changes without us, or fails."""

from __future__ import annotations

import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.opened_stores import postgres_store
from tests.unit.ntf_router.store.samples import filled, subscription, token
from tocsin.errors import StoreError, StoreFull
from tocsin.ntf_router.store.postgres import row_counts
from tocsin.ntf_router.store.postgres.row_counts import KeptCount
from tocsin.ntf_router.store.records import RowLimits


async def test_rows_that_an_operator_removed_make_room_with_the_next_maintenance(server_url: str) -> None:
    async with postgres_store(server_url) as store:
        owner = await filled(store, "owner", 1, 2)
        await store.limit_to(RowLimits(2, 2, 10))
        await filled(store, "other")
        with pytest.raises(StoreFull):
            await store.add_subscription(subscription(3, owner))
        with pytest.raises(StoreFull):
            await add_token(store, token("third"))
        await store._background.execute("DELETE FROM subscriptions WHERE token_id = $1", owner.token_id)
        await store._background.execute("DELETE FROM tokens WHERE token_id <> $1", owner.token_id)
        await store.maintain()
        assert await add_token(store, token("third"))
        for name in (3, 4):
            assert await store.add_subscription(subscription(name, owner))
        with pytest.raises(StoreFull):
            await store.add_subscription(subscription(5, owner))


async def test_a_row_that_may_have_been_added_counts_until_the_next_count(server_url: str) -> None:
    async with postgres_store(server_url) as store:
        kept = KeptCount("tokens")
        kept.most = 1
        await kept.count(store._background)
        with pytest.raises(StoreError), kept.adding():
            raise StoreError("nobody knows whether it was committed")
        with kept.adding() as addition:
            assert not addition.has_room
        await kept.count_if_doubtful(store._background)
        with kept.adding() as addition:
            assert addition.has_room
        with kept.adding() as addition:  # the one before was not added
            assert addition.has_room
            addition.added = True
        with kept.adding() as addition:
            assert not addition.has_room


async def test_a_removal_that_a_count_may_have_seen_is_not_counted_twice(server_url: str) -> None:
    async with postgres_store(server_url) as store:
        await filled(store, "one")
        kept = KeptCount("tokens")
        kept.most = 1
        before = kept.counted
        await kept.count(store._background)
        kept.removed(1, before)
        with kept.adding() as addition:
            assert not addition.has_room


async def test_a_large_table_far_from_its_limit_is_counted_after_the_start(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_counts, "LARGE", 3)
    async with postgres_store(server_url) as store:
        await filled(store, "owner", *range(4))
        await store._background.command("ANALYZE")
        await store.limit_to(RowLimits(100, 100, 100))
        assert (store._counts.tokens.counted, store._counts.subscriptions.counted) == (1, 0)
        await store.maintain()
        assert (store._counts.tokens.counted, store._counts.subscriptions.counted) == (1, 1)


async def test_a_large_table_near_its_limit_is_counted_at_the_start(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is from before the last two rows."""
    monkeypatch.setattr(row_counts, "LARGE", 3)
    async with postgres_store(server_url) as store:
        owner = await filled(store, "owner", *range(4))
        await store._background.command("ANALYZE")
        for name in ("fifth", "sixth"):
            await store.add_subscription(subscription(name, owner))
        await store.limit_to(RowLimits(100, 6, 100))
        with pytest.raises(StoreFull):
            await store.add_subscription(subscription("seventh", owner))
