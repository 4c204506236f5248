"""Device tokens of an NTF store in PostgreSQL.

All modules here take locks in this order: tokens, subscriptions, pending notifications.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import asyncpg

from tocsin.durable.postgres.batched_reads import BatchedReads
from tocsin.errors import StoreFull
from tocsin.ntf_router.store.interface import Registered, Replaced
from tocsin.ntf_router.store.postgres.fences import SHARD_OF_TOKEN, Fences, token_lease
from tocsin.ntf_router.store.postgres.functions import ADDED, FULL, KNOWN, QUOTA
from tocsin.ntf_router.store.postgres.outcomes import END_OF_TOKENS, ReportSettled, end_pending, prune
from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy
from tocsin.ntf_router.store.postgres.row_counts import RowCounts
from tocsin.ntf_router.store.postgres.rows import (
    CRON_DUE,
    SUBSCRIPTIONS,
    TOKEN_COLUMNS,
    TOKENS,
    device_token_columns,
    queue_of_row,
    sql_list,
    status_text,
    token_of_row,
    token_row,
)
from tocsin.ntf_router.store.records import TOKEN_INVALID, TOKEN_REMOVED, RowLimit, TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.lifecycles import CONFIRMED, UNVERIFIED, VERIFIABLE
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

_TOKENS: Final = f"SELECT {TOKEN_COLUMNS} FROM {TOKENS} WHERE t.token_id = ANY($1::bytea[])"  # noqa: S608
_REGISTRATION: Final = f"""
    SELECT {TOKEN_COLUMNS} FROM {TOKENS}
    WHERE t.push_provider = $1 AND t.push_provider_token = $2 AND t.verify_key = $3
"""  # noqa: S608
_REGISTER: Final = f"""
    SELECT became, removed FROM register_token_1({", ".join(f"${each}" for each in range(1, 16))})
"""  # noqa: S608
_REGISTERED: Final = {ADDED: Registered.DONE, QUOTA: Registered.QUOTA}
_UNVERIFIED: Final = f"""
    SELECT t.token_id, coalesce(r.registered_at, 0) AS registered_at,
        EXISTS (SELECT FROM subscriptions s WHERE s.token_id = t.token_id) AS used
    FROM {TOKENS}
    WHERE t.push_provider = $1 AND t.push_provider_token = $2 AND t.status IN {sql_list(UNVERIFIED)}
"""  # noqa: S608
_REMOVE_UNUSED: Final = f"""
    DELETE FROM tokens t WHERE token_id = ANY($1::bytea[]) AND status IN {sql_list(UNVERIFIED)}
        AND NOT EXISTS (SELECT FROM subscriptions s WHERE s.token_id = t.token_id)
"""  # noqa: S608
_NEVER_VERIFIED: Final = f"""
    SELECT t.token_id FROM {TOKENS}
    WHERE t.token_id > $2 AND t.status IN {sql_list(UNVERIFIED)} AND coalesce(r.registered_at, 0) < $1
        AND NOT EXISTS (SELECT FROM subscriptions s WHERE s.token_id = t.token_id)
    ORDER BY t.token_id LIMIT $3
"""  # noqa: S608
_PAGE: Final = 10_000
_REGISTER_AGAIN: Final = f"""
    WITH changed AS (
        UPDATE tokens SET status = 'REGISTERED'
        WHERE token_id = $1 AND status NOT IN {sql_list(VERIFIABLE)} RETURNING token_id
    )
    INSERT INTO token_registrations (token_id, registered_at) SELECT token_id, $2 FROM changed
    ON CONFLICT (token_id) DO UPDATE SET registered_at = EXCLUDED.registered_at
"""  # noqa: S608
_CONFIRM: Final = f"""
    UPDATE tokens SET status = 'CONFIRMED' WHERE token_id = $1 AND status NOT IN {sql_list(CONFIRMED)}
"""  # noqa: S608
_REPLACE: Final = """
    WITH changed AS (
        UPDATE tokens SET push_provider = $2, push_provider_token = $3, reg_code = $4, status = 'REGISTERED'
        WHERE token_id = $1 RETURNING token_id
    )
    INSERT INTO token_registrations (token_id, registered_at) SELECT token_id, $5 FROM changed
    ON CONFLICT (token_id) DO UPDATE SET registered_at = EXCLUDED.registered_at
"""
_RIVALS: Final = """
    SELECT token_id, status, reg_code FROM tokens
    WHERE (push_provider, push_provider_token)
        = (SELECT push_provider, push_provider_token FROM tokens WHERE token_id = $1)
    ORDER BY token_id FOR UPDATE
"""
_QUEUES: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id FROM {SUBSCRIPTIONS}
    WHERE s.token_id = ANY($1::bytea[])
"""  # noqa: S608
_CRON_DUE: Final = f"""
    SELECT {TOKEN_COLUMNS} FROM {TOKENS}
    WHERE t.status = 'ACTIVE' AND {CRON_DUE.format(now="$1")} AND t.token_id > $2
    ORDER BY t.token_id LIMIT $3
"""  # noqa: S608
_CRON_DUE_HERE: Final = _CRON_DUE.replace(
    "t.token_id > $2",
    f"t.token_id > $2 AND {SHARD_OF_TOKEN.replace('token_id', 't.token_id')} = ANY($4::integer[])",
)


class PostgresTokens:
    """Implements `TokenStore`, which describes the methods."""

    _counts: RowCounts
    _clients: NtfPool
    _background: NtfPool
    _report_settled: ReportSettled | None
    _fences: Fences | None
    _tokens: BatchedReads[bytes, TokenRecord]

    async def token(self, token_id: bytes) -> TokenRecord | None:
        return await self._tokens.row(token_id)

    async def _find_tokens(self, token_ids: Sequence[bytes]) -> dict[bytes, TokenRecord]:
        rows = await self._clients.fetch(_TOKENS, token_ids)
        return {row["token_id"]: token_of_row(row) for row in rows}

    async def _registration(self, device_token: DeviceToken, verify_key: bytes) -> TokenRecord | None:
        columns = device_token_columns(device_token)
        row = await self._clients.fetchrow(_REGISTRATION, *columns, verify_key)
        return None if row is None else token_of_row(row)

    async def register(self, token: TokenRecord, since: int, most: int) -> TokenRecord | Registered:
        token_id, provider, device_token, status, verify_key, *others = token_row(token)
        asked = provider, device_token, verify_key, since, most
        with self._counts.tokens.adding() as addition:
            with self._counts.removing() as removal:
                row = await self._clients.fetchrow(
                    _REGISTER, *asked, addition.has_room, token_id, status, *others, token.registered_at
                )
                assert row is not None
                became, removal.tokens = row
            addition.added = became == ADDED
            if became == FULL:
                raise StoreFull(RowLimit.TOKENS)
        if became == KNOWN:
            existing = await self._registration(token.device_token, token.verify_key)
            return Registered.TAKEN if existing is None else existing
        return _REGISTERED.get(became, Registered.TAKEN)

    async def unverified_registrations(self, device_token: DeviceToken, since: int) -> int:
        rows = await self._clients.fetch(_UNVERIFIED, *device_token_columns(device_token))
        old = [row for row in rows if row["registered_at"] < since]
        unused = [row["token_id"] for row in old if not row["used"]]
        if unused:
            with self._counts.removing() as removal:
                removal.tokens = await self._clients.execute(_REMOVE_UNUSED, unused)
        return len(rows) - len(old)

    async def remove_unverified(self, before: int) -> int:
        removed, after = 0, b""
        while rows := await self._background.fetch(_NEVER_VERIFIED, before, after, _PAGE):
            with self._counts.removing() as removal:
                unused = [row["token_id"] for row in rows]
                removal.tokens = await self._background.execute(_REMOVE_UNUSED, unused)
            removed += removal.tokens
            after = unused[-1]
        return removed

    async def note_use(self, token_id: bytes, day: int) -> None:
        await self._clients.execute(
            "UPDATE tokens SET updated_at = $2 WHERE token_id = $1 AND updated_at IS DISTINCT FROM $2",
            token_id,
            day,
        )

    async def register_again(self, token_id: bytes, registered_at: int) -> bool:
        if await self._clients.execute(_REGISTER_AGAIN, token_id, registered_at):
            return True
        return await self.token(token_id) is not None

    async def confirm_token(self, token_id: bytes) -> bool:
        return await self._clients.execute(_CONFIRM, token_id) > 0

    async def activate_token(self, token_id: bytes, code: bytes) -> list[NotifierQueue] | None:
        rivals: list[bytes] = []

        async def statements(connection: Proxy) -> list[NotifierQueue] | None:
            nonlocal rivals
            rows = {row["token_id"]: row for row in await connection.fetch(_RIVALS, token_id)}
            own = rows.pop(token_id, None)
            if own is None or own["reg_code"] != code or own["status"] not in VERIFIABLE:
                return None
            if own["status"] != "ACTIVE":
                await connection.execute("UPDATE tokens SET status = 'ACTIVE' WHERE token_id = $1", token_id)
            rivals = list(rows)
            return await _remove_tokens(connection, rivals, self._report_settled) if rivals else []

        with self._counts.removing() as removal:
            queues = await self._clients.run(statements)
            if queues is not None:
                removal.tokens, removal.subscriptions = len(rivals), len(queues)
        return queues

    async def invalidate_token(self, token_id: bytes, device_token: DeviceToken, status: TokenStatus) -> bool:
        async def statements(connection: Proxy) -> bool:
            before = await connection.fetchval(
                """
                SELECT status FROM tokens
                WHERE token_id = $1 AND push_provider = $2 AND push_provider_token = $3 FOR UPDATE
                """,
                token_id,
                *device_token_columns(device_token),
            )
            if before is None:
                return False
            await end_pending(connection, END_OF_TOKENS, [token_id], TOKEN_INVALID, self._report_settled)
            await prune(connection, [token_id])
            if before == status_text(status):
                return False
            await connection.execute(
                "UPDATE tokens SET status = $2 WHERE token_id = $1", token_id, status_text(status)
            )
            return True

        return await self._clients.run(statements)

    async def replace_token(
        self, token_id: bytes, device_token: DeviceToken, code: bytes, registered_at: int
    ) -> Replaced:
        async def statements(connection: Proxy) -> Replaced:
            try:
                async with connection.transaction():
                    tag = await connection.execute(
                        _REPLACE,
                        token_id,
                        *device_token_columns(device_token),
                        code,
                        registered_at,
                    )
            except asyncpg.UniqueViolationError:
                return Replaced.TAKEN
            return Replaced.MISSING if tag.endswith(" 0") else Replaced.DONE

        return await self._clients.run(statements)

    async def set_cron(self, token_id: bytes, minutes: int, at: int) -> bool:
        statement = "UPDATE tokens SET cron_interval = $2, cron_sent_at = $3 WHERE token_id = $1"
        return await self._clients.execute(statement, token_id, minutes, at) > 0

    async def delete_token(self, token_id: bytes) -> list[NotifierQueue] | None:
        async def statements(connection: Proxy) -> list[NotifierQueue] | None:
            found = await connection.fetchval(
                "SELECT true FROM tokens WHERE token_id = $1 FOR UPDATE", token_id
            )
            return await _remove_tokens(connection, [token_id], self._report_settled) if found else None

        with self._counts.removing() as removal:
            queues = await self._clients.run(statements)
            if queues is not None:
                removal.tokens, removal.subscriptions = 1, len(queues)
        return queues

    async def cron_due(self, now: int, page: int = 1000) -> AsyncIterator[Sequence[TokenRecord]]:
        after = b""
        while True:
            if self._fences is None:
                rows = await self._background.fetch(_CRON_DUE, now, after, page)
            else:
                rows = await self._background.fetch(_CRON_DUE_HERE, now, after, page, self._fences.shards)
            if not rows:
                return
            yield [token_of_row(row) for row in rows]
            after = rows[-1]["token_id"]

    async def cron_sent(self, token_ids: Sequence[bytes], at: int) -> None:
        statement = "UPDATE tokens SET cron_sent_at = $2 WHERE token_id = ANY($1::bytea[])"
        fences = self._fences
        if fences is None:
            await self._background.execute(statement, list(token_ids), at)
            return

        async def statements(connection: Proxy) -> None:
            held = await fences.locked(connection, token_ids)
            ours = [each for each in token_ids if token_lease(each) in held]
            if ours:
                await connection.execute(statement, ours, at)

        await self._background.run(statements)


async def _remove_tokens(
    connection: Proxy, token_ids: list[bytes], report: ReportSettled | None
) -> list[NotifierQueue]:
    """Remove locked tokens, to which nothing can be added meanwhile. A cascade removes the rest."""
    queues = [queue_of_row(row) for row in await connection.fetch(_QUEUES, token_ids)]
    await end_pending(connection, END_OF_TOKENS, token_ids, TOKEN_REMOVED, report)
    await connection.execute("DELETE FROM tokens WHERE token_id = ANY($1::bytea[])", token_ids)
    return queues
