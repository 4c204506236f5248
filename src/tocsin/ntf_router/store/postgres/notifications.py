"""Last notifications of an NTF store in PostgreSQL.

A last notification is pending if there is a row for it, with its nonce, in our own table. The reference knows nothing
of that: if it replaced the notification meanwhile, ours expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from asyncpg import Record

from tocsin.ntf_router.store.postgres.outcomes import (
    END_OF_OLD,
    RECEIVED,
    SUPERSEDED,
    ReportSettled,
    count_and_prune,
    end_pending,
    prune,
)
from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy
from tocsin.ntf_router.store.postgres.received_batch import ReceivedBatch
from tocsin.ntf_router.store.postgres.rows import TOKEN_COLUMNS, TOKENS, router_of, token_of_row
from tocsin.ntf_router.store.records import (
    ACCEPTED,
    EXPIRED,
    Accounting,
    DuePush,
    LastNotification,
    NotRecorded,
    PendingNotification,
    ReceivedNotification,
    Recorded,
    SettledNotification,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import item_text, router_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

# A row for each token, whose columns are many, with its notifications in arrays.
_DUE: Final = f"""
    SELECT {TOKEN_COLUMNS}, last.* FROM {TOKENS}
    JOIN LATERAL (
        SELECT array_agg(l.subscription_id ORDER BY l.sent_at, l.token_ntf_id) AS subscription_ids,
            array_agg(s.smp_notifier_id ORDER BY l.sent_at, l.token_ntf_id) AS notifier_ids,
            array_agg(v.smp_host ORDER BY l.sent_at, l.token_ntf_id) AS hosts,
            array_agg(v.smp_port ORDER BY l.sent_at, l.token_ntf_id) AS ports,
            array_agg(v.smp_keyhash ORDER BY l.sent_at, l.token_ntf_id) AS keyhashes,
            array_agg(coalesce(p.received_at, extract(epoch FROM l.sent_at)::float8)
                ORDER BY l.sent_at, l.token_ntf_id) AS times,
            array_agg(l.nmsg_nonce ORDER BY l.sent_at, l.token_ntf_id) AS nonces,
            array_agg(l.nmsg_data ORDER BY l.sent_at, l.token_ntf_id) AS metas,
            array_agg(p.nonce IS NOT NULL ORDER BY l.sent_at, l.token_ntf_id) AS are_pending
        FROM last_notifications l
        JOIN subscriptions s ON s.subscription_id = l.subscription_id
        JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
        LEFT JOIN pending_notifications p ON p.subscription_id = l.subscription_id AND p.nonce = l.nmsg_nonce
        WHERE l.token_id = t.token_id
    ) AS last ON true
    WHERE t.token_id = ANY($1::bytea[]) AND t.status = 'ACTIVE' AND true = ANY(last.are_pending)
"""  # noqa: S608
_SETTLE: Final = """
    DELETE FROM pending_notifications p
    USING unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS ended (subscription_id, token_id, nonce)
    WHERE p.subscription_id = ended.subscription_id AND p.token_id = ended.token_id AND p.nonce = ended.nonce
    RETURNING p.subscription_id, p.nonce
"""
ACCOUNTING: Final = """
    SELECT outcome, sum(count)::bigint AS count FROM notification_totals GROUP BY outcome
    UNION ALL SELECT 'pending', count(*) FROM pending_notifications
"""


class PostgresNotifications:
    """Implements `tocsin.ntf_router.store.interface.NotificationStore`, where the methods are described."""

    _clients: NtfPool
    _background: NtfPool
    _report_settled: ReportSettled | None = None

    def report_settled_to(self, report: ReportSettled) -> None:
        self._report_settled = report

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[ReceivedNotification],
        before_commit: Callable[[Sequence[Recorded | NotRecorded]], None] | None = None,
    ) -> list[Recorded | NotRecorded]:
        async def work(connection: Proxy) -> list[Recorded | NotRecorded]:
            batch = await ReceivedBatch.locked(connection, router, received)
            results = [batch.add(each) for each in received]
            await batch.write(connection)
            if before_commit is not None:
                before_commit(results)
            return results

        return await self._clients.run(work)

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[DuePush]:
        rows = await self._clients.fetch(_DUE, list(token_ids))
        found = {row["token_id"]: row for row in rows}
        asked = [found[token_id] for token_id in dict.fromkeys(token_ids) if token_id in found]
        return [DuePush(token_of_row(row), _notifications_of_row(row)) for row in asked]

    async def settle(
        self,
        settled: Sequence[SettledNotification],
        before_commit: Callable[[Sequence[SettledNotification]], None] | None = None,
    ) -> None:
        first = {(each.subscription_id, each.nonce): each for each in reversed(settled)}
        if not first:
            return
        columns = [(each.subscription_id, each.token_id, each.nonce) for each in first.values()]

        async def work(connection: Proxy) -> None:
            rows = await connection.fetch(_SETTLE, *map(list, zip(*columns, strict=True)))
            ended = [first[tuple(row)] for row in rows]
            outcomes = Counter([each.outcome for each in ended])
            await count_and_prune(connection, outcomes, list({each.token_id for each in ended}))
            if before_commit is not None and ended:
                before_commit(ended)

        await self._clients.run(work)

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        statement = """
            SELECT DISTINCT token_id FROM pending_notifications WHERE token_id > $1 ORDER BY token_id LIMIT $2
        """
        return [row["token_id"] for row in await self._background.fetch(statement, after or b"", limit)]

    async def expire_pending(self, before: float) -> int:
        async def work(connection: Proxy) -> int:
            rows = await end_pending(connection, END_OF_OLD, before, EXPIRED, self._report_settled)
            await prune(connection, list({row["token_id"] for row in rows}))
            return len(rows)

        return await self._background.run(work)

    async def accounting(self) -> Accounting:
        return accounting_of_rows(await self._background.fetch(ACCOUNTING))


def accounting_of_rows(rows: Sequence[Record]) -> Accounting:
    counts = {row["outcome"]: row["count"] for row in rows}
    received, pending = counts.pop(RECEIVED, 0), counts.pop("pending", 0)
    accepted, superseded = counts.pop(ACCEPTED, 0), counts.pop(SUPERSEDED, 0)
    return Accounting(received, accepted, superseded, counts, pending)


def _notifications_of_row(row: Record) -> tuple[LastNotification, ...]:
    notifications: list[LastNotification] = []
    columns = row["subscription_ids"], row["notifier_ids"], row["hosts"], row["ports"], row["keyhashes"]
    facts = row["times"], row["nonces"], row["metas"], row["are_pending"]
    for subscription_id, notifier_id, host, port, keyhash, received_at, nonce, meta, is_pending in zip(
        *columns, *facts, strict=True
    ):
        router = router_of(host, port, keyhash)
        text = router_text(router) + item_text(notifier_id, int(received_at), nonce, meta)
        if is_pending:
            queue = NotifierQueue(router, notifier_id)
            notifications.append(PendingNotification(received_at, nonce, text, subscription_id, queue))
        else:
            notifications.append(LastNotification(received_at, nonce, text))
    return tuple(notifications)
