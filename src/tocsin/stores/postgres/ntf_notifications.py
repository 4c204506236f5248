"""Last notifications of an NTF store in PostgreSQL.

A last notification is pending if there is a row for it, with its nonce, in our own table. The reference knows nothing
of that: if it replaced the notification meanwhile, ours expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from asyncpg import Record

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.stores.ntf_records import (
    ACCEPTED,
    EXPIRED,
    Accounting,
    DuePush,
    LastNotification,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    Settled,
)
from tocsin.stores.postgres.ntf_outcomes import (
    END_OF_OLD,
    PROVIDERS,
    RECEIVED,
    SUPERSEDED,
    TellEnded,
    count_outcomes,
    end_pending,
    prune,
)
from tocsin.stores.postgres.ntf_pools import NtfPool, Proxy
from tocsin.stores.postgres.ntf_rows import (
    SUBSCRIPTIONS,
    TOKEN_COLUMNS,
    queue_of_row,
    router_row,
    time_of,
    token_of_row,
)

_AT_ROUTER: Final = "v.smp_host = $1 AND v.smp_port = $2 AND v.smp_keyhash = $3"
_LOCK_TOKENS: Final = f"""
    SELECT token_id, push_provider FROM tokens
    WHERE status = 'ACTIVE' AND token_id IN (
        SELECT s.token_id FROM {SUBSCRIPTIONS} WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($4::bytea[])
    )
    ORDER BY token_id FOR SHARE
"""  # noqa: S608
_LOCK_QUEUES: Final = f"""
    SELECT s.subscription_id, s.token_id, s.smp_notifier_id FROM {SUBSCRIPTIONS}
    WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($4::bytea[]) AND s.token_id = ANY($5::bytea[])
    ORDER BY s.subscription_id FOR UPDATE OF s
"""  # noqa: S608
_LAST: Final = """
    SELECT subscription_id, nmsg_nonce FROM last_notifications WHERE subscription_id = ANY($1::bytea[])
"""
# Locked, so that none comes to its end between being counted as superseded here and being replaced.
_LOCK_PENDING: Final = """
    SELECT subscription_id, nonce, received_at FROM pending_notifications
    WHERE subscription_id = ANY($1::bytea[])
    ORDER BY subscription_id FOR UPDATE
"""
_WRITE: Final = """
    WITH came AS (
        SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::timestamptz[], $4::float8[], $5::bytea[], $6::bytea[])
            AS came (subscription_id, token_id, sent_at, received_at, nonce, data)
    ), waiting AS (
        INSERT INTO pending_notifications (subscription_id, token_id, nonce, received_at)
        SELECT subscription_id, token_id, nonce, received_at FROM came
        ON CONFLICT (subscription_id) DO UPDATE
        SET token_id = EXCLUDED.token_id, nonce = EXCLUDED.nonce, received_at = EXCLUDED.received_at
    )
    INSERT INTO last_notifications (token_id, subscription_id, sent_at, nmsg_nonce, nmsg_data)
    SELECT token_id, subscription_id, sent_at, nonce, data FROM came
    ON CONFLICT (token_id, subscription_id) DO UPDATE
    SET sent_at = EXCLUDED.sent_at, nmsg_nonce = EXCLUDED.nmsg_nonce, nmsg_data = EXCLUDED.nmsg_data
"""
_DUE: Final = f"""
    SELECT {TOKEN_COLUMNS}, v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id,
        l.sent_at, l.nmsg_nonce, l.nmsg_data, p.nonce IS NOT NULL AS is_pending, p.received_at
    FROM tokens t LEFT JOIN token_registrations r ON r.token_id = t.token_id
    JOIN last_notifications l ON l.token_id = t.token_id
    JOIN subscriptions s ON s.subscription_id = l.subscription_id
    JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
    LEFT JOIN pending_notifications p ON p.subscription_id = l.subscription_id AND p.nonce = l.nmsg_nonce
    WHERE t.token_id = ANY($1::bytea[]) AND t.status = 'ACTIVE'
    ORDER BY t.token_id, l.sent_at, l.token_ntf_id
"""  # noqa: S608
_SETTLE: Final = f"""
    WITH ended AS (
        SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::text[])
            AS ended (host, port, keyhash, notifier_id, token_id, nonce, outcome)
    )
    DELETE FROM pending_notifications p USING ended, {SUBSCRIPTIONS}
    WHERE v.smp_host = ended.host AND v.smp_port = ended.port AND v.smp_keyhash = ended.keyhash
        AND s.smp_notifier_id = ended.notifier_id AND s.token_id = ended.token_id
        AND p.subscription_id = s.subscription_id AND p.nonce = ended.nonce
    RETURNING p.token_id, p.nonce, ended.outcome, v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id
"""  # noqa: S608
ACCOUNTING: Final = """
    SELECT outcome, sum(count)::bigint AS count FROM notification_totals GROUP BY outcome
    UNION ALL SELECT 'pending', count(*) FROM pending_notifications
"""


class PostgresNotifications:
    """Implements `tocsin.stores.ntf_store.NotificationStore`, where the methods are described."""

    _clients: NtfPool
    _background: NtfPool
    _tell_ended: TellEnded | None = None

    def tell_ended(self, tell: TellEnded) -> None:
        self._tell_ended = tell

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[ReceivedNotification],
        before_commit: Callable[[Sequence[Recorded | NotRecorded]], None] | None = None,
    ) -> list[Recorded | NotRecorded]:
        async def work(connection: Proxy) -> list[Recorded | NotRecorded]:
            batch = await _Batch.locked(connection, router, received)
            results = [batch.add(each) for each in received]
            await batch.write(connection)
            if before_commit is not None:
                before_commit(results)
            return results

        return await self._clients.run(work)

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[DuePush]:
        found = {}
        rows = await self._clients.fetch(_DUE, list(token_ids))
        for token_id, group in groupby(rows, lambda row: row["token_id"]):
            of_token = list(group)
            if any(row["is_pending"] for row in of_token):
                notifications = tuple([_notification_of_row(row) for row in of_token])
                found[token_id] = DuePush(token_of_row(of_token[0]), notifications)
        return [found[token_id] for token_id in dict.fromkeys(token_ids) if token_id in found]

    async def settle(
        self,
        settled: Sequence[Settled],
        before_commit: Callable[[Sequence[Settled]], None] | None = None,
    ) -> None:
        first = {(each.token_id, each.nonce, each.queue): each for each in reversed(settled)}
        if not first:
            return
        columns = [
            (*router_row(each.queue.router), each.queue.notifier_id, each.token_id, each.nonce, each.outcome)
            for each in first.values()
        ]

        async def work(connection: Proxy) -> None:
            rows = await connection.fetch(_SETTLE, *map(list, zip(*columns, strict=True)))
            await count_outcomes(connection, Counter(row["outcome"] for row in rows))
            await prune(connection, list({row["token_id"] for row in rows}))
            if before_commit is not None and rows:
                before_commit([first[row["token_id"], row["nonce"], queue_of_row(row)] for row in rows])

        await self._clients.run(work)

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        statement = """
            SELECT DISTINCT token_id FROM pending_notifications WHERE token_id > $1 ORDER BY token_id LIMIT $2
        """
        return [row["token_id"] for row in await self._background.fetch(statement, after or b"", limit)]

    async def expire_pending(self, before: float) -> int:
        async def work(connection: Proxy) -> int:
            rows = await end_pending(connection, END_OF_OLD, before, EXPIRED, self._tell_ended)
            await prune(connection, list({row["token_id"] for row in rows}))
            return len(rows)

        return await self._background.run(work)

    async def accounting(self) -> Accounting:
        return accounting_of_rows(await self._background.fetch(ACCOUNTING))


class _Batch:
    """Notifications of one SMP router whose tokens and subscriptions are locked: decided here, written at once."""

    def __init__(self) -> None:
        self._providers: dict[bytes, PushProvider] = {}
        self._subscriptions: dict[bytes, tuple[bytes, bytes]] = {}
        """Subscription id and token id by notifier id."""
        self._last: dict[bytes, bytes] = {}
        self._pending: dict[bytes, tuple[bytes, float]] = {}
        """Nonces and times by subscription id.

        What is pending may not be the last one, if the reference was here meanwhile.
        """
        self._new: dict[bytes, tuple[bytes, ReceivedNotification]] = {}
        self._counts: Counter[str] = Counter()

    @classmethod
    async def locked(
        cls, connection: Proxy, router: RouterLocation, received: Sequence[ReceivedNotification]
    ) -> _Batch:
        batch = cls()
        where, notifier_ids = router_row(router), list({each.notifier_id for each in received})
        for row in await connection.fetch(_LOCK_TOKENS, *where, notifier_ids):
            if row["push_provider"] in PROVIDERS:
                batch._providers[row["token_id"]] = PROVIDERS[row["push_provider"]]
        for row in await connection.fetch(_LOCK_QUEUES, *where, notifier_ids, list(batch._providers)):
            batch._subscriptions[row["smp_notifier_id"]] = row["subscription_id"], row["token_id"]
        subscription_ids = [subscription_id for subscription_id, _ in batch._subscriptions.values()]
        for row in await connection.fetch(_LOCK_PENDING, subscription_ids):
            batch._pending[row["subscription_id"]] = row["nonce"], row["received_at"]
        for row in await connection.fetch(_LAST, subscription_ids):
            batch._last[row["subscription_id"]] = row["nmsg_nonce"]
        return batch

    def add(self, received: ReceivedNotification) -> Recorded | NotRecorded:
        found = self._subscriptions.get(received.notifier_id)
        if found is None:
            return NotRecorded.UNKNOWN_QUEUE
        subscription_id, token_id = found
        if self._last.get(subscription_id) == received.nonce:
            return NotRecorded.DUPLICATE
        superseded = self._pending.get(subscription_id)
        self._counts[RECEIVED] += 1
        self._counts[SUPERSEDED] += superseded is not None
        self._last[subscription_id] = received.nonce
        self._pending[subscription_id] = received.nonce, received.received_at
        self._new[subscription_id] = token_id, received
        return Recorded(token_id, self._providers[token_id], *(superseded or (None, None)))

    async def write(self, connection: Proxy) -> None:
        if not self._new:
            return
        await connection.execute(
            _WRITE,
            list(self._new),
            [token_id for token_id, _ in self._new.values()],
            [time_of(each.received_at) for _, each in self._new.values()],
            [each.received_at for _, each in self._new.values()],
            [each.nonce for _, each in self._new.values()],
            [each.sealed_meta for _, each in self._new.values()],
        )
        await count_outcomes(connection, self._counts)
        await prune(connection, list({token_id for token_id, _ in self._new.values()}))


def accounting_of_rows(rows: Sequence[Record]) -> Accounting:
    counts = {row["outcome"]: row["count"] for row in rows}
    received, pending = counts.pop(RECEIVED, 0), counts.pop("pending", 0)
    accepted, superseded = counts.pop(ACCEPTED, 0), counts.pop(SUPERSEDED, 0)
    return Accounting(received, accepted, superseded, counts, pending)


def _notification_of_row(row: Record) -> LastNotification:
    exactly = row["received_at"]
    return LastNotification(
        queue_of_row(row),
        row["sent_at"].timestamp() if exactly is None else exactly,
        row["nmsg_nonce"],
        row["nmsg_data"],
        row["is_pending"],
    )
