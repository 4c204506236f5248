"""Reads a campaign's tokens from the router's PostgreSQL: their number, or one share of them on an executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tocsin.ntf_router.delivery.channels.handover_key import read_handover_key
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder, CampaignToken

if TYPE_CHECKING:
    from tocsin.ntf_router.store.postgres.pools import NtfPool

PAGE: Final = 10_000
PREFIXES: Final = 1 << 16
"""Token ids are random, so equal ranges of their first two bytes hold about as many tokens."""

_WANTED: Final = """
    t.status = 'ACTIVE' AND t.push_provider = ANY($1::text[]) AND ($2::bigint IS NULL OR ({cron_due}))
"""
_COUNT: Final = "SELECT t.push_provider, count(*) FROM tokens t WHERE {wanted} GROUP BY 1"
_PAGE: Final = """
    SELECT t.token_id, t.push_provider, t.push_provider_token, coalesce(r.registered_at, 0) AS registered_at
    FROM tokens t LEFT JOIN token_registrations r ON r.token_id = t.token_id
    WHERE {wanted} AND t.token_id >= $3 AND ($4::bytea IS NULL OR t.token_id < $4) AND t.token_id > $5
    ORDER BY t.token_id LIMIT $6
"""


class TokenSource(msgspec.Struct, frozen=True, array_like=True):
    """The database, and which tokens to read. The URL may hold a password, so it is sealed to leave the process."""

    url: str
    schema: str
    providers: tuple[str, ...]
    due_at: int | None
    """Selects tokens whose periodic push is due at this time, in seconds since 1970. None selects all ACTIVE tokens."""

    def __repr__(self) -> str:
        """Does not show the URL."""
        return f"TokenSource({self.providers}, {self.due_at})"

    async def counts(self) -> dict[str, int]:
        """Number of tokens by provider. Raises StoreError."""
        pool = await self._pool()
        try:
            rows = await pool.fetch(_statement(_COUNT), list(self.providers), self.due_at)
            return {row[0]: row[1] for row in rows}
        finally:
            await pool.close()

    async def pages(self, shard: int, shards: int) -> AsyncIterator[Sequence[CampaignToken]]:
        """The shard's tokens, ordered by id. Raises StoreError."""
        low, high = _bound(shard, shards), _bound(shard + 1, shards) if shard + 1 < shards else None
        pool = await self._pool()
        try:
            after, page = b"", _statement(_PAGE)
            while rows := await pool.fetch(page, list(self.providers), self.due_at, low, high, after, PAGE):
                yield [CampaignToken(*row) for row in rows]
                after = rows[-1]["token_id"]
        finally:
            await pool.close()

    async def _pool(self) -> NtfPool:
        from tocsin.ntf_router.store.postgres.pools import BACKGROUND_TIMEOUT, NtfPool  # needs asyncpg

        return await NtfPool.open(self.url, self.schema, 1, BACKGROUND_TIMEOUT)


def _statement(template: str) -> str:
    from tocsin.ntf_router.store.postgres.rows import CRON_DUE  # needs asyncpg

    return template.format(wanted=_WANTED.format(cron_due=CRON_DUE.format(now="$2::bigint")))


def _bound(shard: int, shards: int) -> bytes:
    return (PREFIXES * shard // shards).to_bytes(2, "big") if shard else b""


@dataclass(frozen=True, slots=True)
class FanoutPlanner:
    """Implements `SharePlanner`: writes a share of the tokens to the campaign's folder."""

    folder: Path
    keys: Path

    def __call__(self, shard: int, shards: int) -> dict[str, int]:
        campaign = CampaignFolder(self.folder, read_handover_key(self.keys))
        source = msgspec.msgpack.decode(campaign.opened_source(), type=TokenSource)
        with asyncio.Runner() as runner:
            return campaign.write_share(shard, _synchronous(runner, source.pages(shard, shards)))


def _synchronous(
    runner: asyncio.Runner, pages: AsyncIterator[Sequence[CampaignToken]]
) -> Iterator[Sequence[CampaignToken]]:
    async def next_page() -> Sequence[CampaignToken] | None:
        return await anext(pages, None)

    while page := runner.run(next_page()):
        yield page
