"""Rows that instances of a fleet read: leases that should exist, and what a lost notice would have told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from asyncpg import Connection, Record

from tocsin.ntf_router.store.postgres.fences import (
    CHORES,
    PUSHES,
    ROUTERS,
    SHARD_OF_TOKEN,
    SHARDS,
    shard_lease,
)
from tocsin.ntf_router.store.postgres.pools import NtfPool, rows_of
from tocsin.ntf_router.store.postgres.rows import (
    NO_KEY,
    SUBSCRIPTIONS,
    identity_of,
    queue_of_row,
    router_of_row,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

MOST_NEW: Final = 10_000
"""New queues that one look finds. The next one finds the others."""
_ADD_FIXED: Final = """
    INSERT INTO fleet_leases (name, kind) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING
"""
_ADD_ROUTERS: Final = f"""
    INSERT INTO fleet_leases (name, kind)
    SELECT DISTINCT '{ROUTERS} ' || convert_from(v.smp_keyhash, 'UTF8'), '{ROUTERS}' FROM smp_servers v
    WHERE NOT EXISTS (
        SELECT FROM fleet_leases l WHERE l.name = '{ROUTERS} ' || convert_from(v.smp_keyhash, 'UTF8')
    )
    ON CONFLICT DO NOTHING
"""  # noqa: S608
_NEW: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id, s.smp_notifier_key, s.token_id
    FROM {SUBSCRIPTIONS} JOIN tokens t ON t.token_id = s.token_id
    WHERE v.smp_keyhash = ANY($1::bytea[]) AND s.status = 'NEW' AND NOT s.ntf_service_assoc AND t.status = 'ACTIVE'
        AND s.smp_notifier_key <> '\\x{NO_KEY.hex()}'::bytea
    ORDER BY s.subscription_id LIMIT {MOST_NEW}
"""  # noqa: S608
_UNREGISTERED: Final = """
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, found.token_id
    FROM smp_servers v JOIN LATERAL (
        SELECT s.token_id FROM subscriptions s
        WHERE s.smp_server_id = v.smp_server_id AND s.ntf_service_assoc LIMIT 1
    ) AS found ON true
    WHERE v.smp_keyhash = ANY($1::bytea[]) AND v.ntf_service_id IS NULL
"""
_RECENTLY_PENDING: Final = f"""
    SELECT DISTINCT token_id FROM pending_notifications
    WHERE received_at > $1 AND {SHARD_OF_TOKEN} = ANY($2::integer[])
"""  # noqa: S608


class NewQueue(NamedTuple):
    queue: NotifierQueue
    notifier_key: bytes
    token_id: bytes


class FleetRows:
    """Reads of one instance. All raise StoreError."""

    def __init__(self, pool: NtfPool) -> None:
        self._pool: Final = pool

    async def new_queues(self, routers: Iterable[RouterLocation]) -> list[NewQueue]:
        """Return queues of active tokens that nobody has subscribed to yet."""
        rows = await self._pool.fetch(_NEW, [identity_of(each) for each in routers])
        return [NewQueue(queue_of_row(row), row["smp_notifier_key"], row["token_id"]) for row in rows]

    async def unregistered(self, routers: Iterable[RouterLocation]) -> list[tuple[RouterLocation, bytes]]:
        """Return SMP routers with associated queues where we have no service, and a token of each."""
        rows = await self._pool.fetch(_UNREGISTERED, [identity_of(each) for each in routers])
        return [(router_of_row(row), row["token_id"]) for row in rows]

    async def recently_pending(self, since: float, shards: list[int]) -> list[bytes]:
        """Return tokens of these shards with pending notifications that were received since a time."""
        rows = await self._pool.fetch(_RECENTLY_PENDING, since, shards)
        return [row["token_id"] for row in rows]


async def add_wanted_leases(connection: Connection[Record]) -> bool:
    """Add a lease for each SMP router and each shard of tokens, and one of chores. Returns whether one was missing."""
    names = {CHORES: CHORES} | {shard_lease(shard): PUSHES for shard in range(SHARDS)}
    added = rows_of(await connection.execute(_ADD_FIXED, list(names), list(names.values())))
    added += rows_of(await connection.execute(_ADD_ROUTERS))
    return added > 0
