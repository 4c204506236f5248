"""Queues of direct notifications of an NTF store in PostgreSQL.

They are rows of the reference's table, associated with our service, so that its server continues with them if it
presents the same certificate. The table requires a key, so they have one without a private half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncpg import Record

from tocsin.ntf_router.store.postgres.fences import Fences
from tocsin.ntf_router.store.postgres.outcomes import (
    END_OF_SUBSCRIPTIONS,
    ReportSettled,
    end_pending,
    keep_periods,
)
from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy, rows_of
from tocsin.ntf_router.store.postgres.row_counts import Addition, RowCounts
from tocsin.ntf_router.store.postgres.rows import (
    NO_KEY,
    SUBSCRIPTIONS,
    identity_of,
    queue_of_row,
    router_row,
)
from tocsin.ntf_router.store.postgres.subscriptions import ADD_SUBSCRIPTION, FIRST_OF_SEVERAL, execute_at
from tocsin.ntf_router.store.records import SUBSCRIPTION_REMOVED, Associated, end_mark
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

_ID_BYTES: Final = 24
_AT_ROUTER: Final = "v.smp_keyhash = $1"
_QUEUE: Final = f"""
    SELECT s.subscription_id, s.token_id, s.smp_notifier_key FROM {SUBSCRIPTIONS}
    WHERE {_AT_ROUTER} AND s.smp_notifier_id = $2 ORDER BY {FIRST_OF_SEVERAL} FOR UPDATE OF s
"""  # noqa: S608
_GONE: Final = f"""
    WITH gone AS (
        SELECT s.subscription_id FROM {SUBSCRIPTIONS}
        WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($2::bytea[]) AND s.smp_notifier_key = $3 FOR UPDATE OF s
    ), noted AS (
        INSERT INTO direct_gone (subscription_id, gone_at) SELECT subscription_id, $4 FROM gone
        ON CONFLICT DO NOTHING
    )
    UPDATE subscriptions s SET status = 'DELETED' FROM gone WHERE s.subscription_id = gone.subscription_id
"""  # noqa: S608
_ALIVE: Final = f"""
    WITH back AS (
        DELETE FROM direct_gone g USING {SUBSCRIPTIONS}
        WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($2::bytea[]) AND g.subscription_id = s.subscription_id
        RETURNING g.subscription_id
    )
    UPDATE subscriptions s SET status = 'ACTIVE' FROM back WHERE s.subscription_id = back.subscription_id
"""  # noqa: S608
_DUE: Final = f"""
    SELECT s.subscription_id, s.smp_notifier_id, v.smp_host, v.smp_port, v.smp_keyhash FROM {SUBSCRIPTIONS}
    JOIN direct_gone g ON g.subscription_id = s.subscription_id
    WHERE g.gone_at < $1 ORDER BY s.subscription_id FOR UPDATE OF s
"""  # noqa: S608
_END: Final = """
    INSERT INTO direct_ended AS known (notifier_id, until) VALUES ($1, $2)
    ON CONFLICT (notifier_id) DO UPDATE SET until = greatest(known.until, EXCLUDED.until)
"""


class PostgresDirect:
    """Implements `DirectStore`, which describes the methods."""

    _counts: RowCounts
    _clients: NtfPool
    _background: NtfPool
    _fences: Fences | None
    _report_settled: ReportSettled | None

    async def associate(self, token_id: bytes, queue: NotifierQueue, now: int) -> Associated:
        with self._counts.subscriptions.adding() as addition:
            result = await self._associate(token_id, queue, now, addition)
            addition.added = result is Associated.ADDED
        return result

    async def _associate(
        self, token_id: bytes, queue: NotifierQueue, now: int, addition: Addition
    ) -> Associated:
        async def statements(connection: Proxy) -> Associated:
            found = await connection.fetchval(
                "SELECT true FROM tokens WHERE token_id = $1 AND status = 'ACTIVE' FOR NO KEY UPDATE",
                token_id,
            )
            if not found:
                return Associated.NO_TOKEN
            row = await connection.fetchrow(_QUEUE, identity_of(queue.router), queue.notifier_id)
            if row is not None:
                known = row["token_id"] == token_id and row["smp_notifier_key"] == NO_KEY
                return Associated.KNOWN if known else Associated.TAKEN
            if len(queue.notifier_id) != _ID_BYTES:
                return Associated.TAKEN
            ended = "SELECT true FROM direct_ended WHERE notifier_id = $1 AND until > $2"
            if await connection.fetchval(ended, end_mark(token_id, queue.notifier_id), now):
                return Associated.REMOVED
            await self._counts.check_room(connection, token_id, addition)
            ids = queue.notifier_id, token_id, queue.notifier_id
            where = router_row(queue.router)
            added = await connection.execute(ADD_SUBSCRIPTION, *where, *ids, NO_KEY, "ACTIVE", True)
            return Associated.ADDED if rows_of(added) else Associated.TAKEN

        return await self._clients.run(statements)

    async def dissociate(self, token_id: bytes, queue: NotifierQueue, until: int | None) -> bool:
        found: Record | None = None

        async def statements(connection: Proxy) -> bool:
            nonlocal found
            await keep_periods(connection, [queue.notifier_id])
            row = found = await connection.fetchrow(_QUEUE, identity_of(queue.router), queue.notifier_id)
            if row is not None:
                if row["token_id"] != token_id or row["smp_notifier_key"] != NO_KEY:
                    return False
                await self._remove(connection, [row["subscription_id"]])
            if until is not None:
                await connection.execute(_END, end_mark(token_id, queue.notifier_id), until)
            return True

        with self._counts.removing() as removal:
            done = await self._clients.run(statements)
            removal.subscriptions = int(done and found is not None)
        return done

    async def note_deleted(self, router: RouterLocation, notifier_ids: Sequence[bytes], at: int) -> int:
        arguments = identity_of(router), list(notifier_ids), NO_KEY, at
        return await execute_at(self._background, self._fences, router, _GONE, *arguments)

    async def note_alive(self, router: RouterLocation, notifier_ids: Sequence[bytes]) -> int:
        arguments = identity_of(router), list(notifier_ids)
        return await execute_at(self._background, self._fences, router, _ALIVE, *arguments)

    async def remove_deleted(self, before: int) -> list[NotifierQueue]:
        async def statements(connection: Proxy) -> list[NotifierQueue]:
            gone = await connection.fetch(
                "SELECT subscription_id FROM direct_gone WHERE gone_at < $1", before
            )
            await keep_periods(connection, [row["subscription_id"] for row in gone])
            rows = await connection.fetch(_DUE, before)
            await self._remove(connection, [row["subscription_id"] for row in rows])
            return [queue_of_row(row) for row in rows]

        with self._counts.removing() as removal:
            queues = await self._background.run(statements)
            removal.subscriptions = len(queues)
        return queues

    async def _remove(self, connection: Proxy, subscription_ids: Sequence[bytes]) -> None:
        """Remove queues whose rows are locked."""
        if subscription_ids:
            ids = list(subscription_ids)
            await end_pending(
                connection, END_OF_SUBSCRIPTIONS, ids, SUBSCRIPTION_REMOVED, self._report_settled
            )
            await connection.execute(
                "DELETE FROM subscriptions WHERE subscription_id = ANY($1::bytea[])", ids
            )

    async def forget_ended(self, now: int) -> int:
        return await self._background.execute("DELETE FROM direct_ended WHERE until <= $1", now)

    async def direct_keys(self) -> bytes | None:
        row = await self._clients.fetchrow("SELECT keys FROM direct_keys")
        return None if row is None else bytes(row["keys"])

    async def set_direct_keys(self, keys: bytes, known: bytes | None) -> bool:
        if known is None:
            return (
                await self._clients.execute(
                    "INSERT INTO direct_keys (keys) VALUES ($1) ON CONFLICT (single) DO NOTHING", keys
                )
                > 0
            )
        statement = "UPDATE direct_keys SET keys = $1 WHERE keys = $2"
        return await self._clients.execute(statement, keys, known) > 0
