"""Executors read disjoint shares of a campaign's tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.ntf_router.store.samples import ROUTER, received, settled, subscription, token
from tests.unit.pipeline.jobs.test_fanout import TEST, due, fill
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.pipeline.fanout.campaign_tokens import TokenSource


@pytest.mark.parametrize("shards", [1, 3, 7])
async def test_shares_of_tokens_are_disjoint_and_whole(url: str, shards: int) -> None:
    tokens = [due(f"t{number}") for number in range(40)]
    edges = [replace(due(f"edge {first}"), token_id=bytes([first]) + bytes(23)) for first in (0, 255)]
    await fill(url, [*tokens, *edges, token("another provider", cron_minutes=20)])
    source = TokenSource(url, "ntf_server", (TEST.text,), 2_000_000_000)
    shares = [
        [each.token_id async for page in source.pages(shard, shards) for each in page]
        for shard in range(shards)
    ]
    assert sorted(each for share in shares for each in share) == sorted(
        each.token_id for each in [*tokens, *edges]
    )
    assert all(share == sorted(share) for share in shares)
    assert await source.counts() == {TEST.text: 42}


async def test_a_token_is_due_one_period_after_its_last_message_as_in_the_router(url: str) -> None:
    """A campaign of due tokens looked at periodic pushes only, and woke phones that a message had just woken."""
    owner, now = due("a"), 1_700_000_000
    await fill(url, [owner])
    store = await open_ntf_postgres_store(url, "ntf_server", 2)
    try:
        assert await store.add_subscription(subscription("q", owner))
        await store.add_notifications(ROUTER, [received("q", at=now + 0.5)])
        assert await TokenSource(url, "ntf_server", (TEST.text,), now + 9999).counts() == {}  # it waits
        await store.settle([settled(owner, "q")])
    finally:
        await store.close()
    assert await TokenSource(url, "ntf_server", (TEST.text,), now + 1200).counts() == {}
    assert await TokenSource(url, "ntf_server", (TEST.text,), now + 1201).counts() == {TEST.text: 1}
    assert await TokenSource(url, "ntf_server", (TEST.text,), None).counts() == {TEST.text: 1}
