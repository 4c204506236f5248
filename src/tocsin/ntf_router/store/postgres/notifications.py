"""Last notifications of an NTF store in PostgreSQL.

A last notification is pending if our own table has a row with its nonce. The reference does not know that table: if it
replaced the notification meanwhile, our row expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from asyncpg import Record

from tocsin.ntf_router.store import records
from tocsin.ntf_router.store.postgres.fences import (
    SHARD_OF_TOKEN,
    Fences,
    LeaseLost,
    router_lease,
    token_lease,
)
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
from tocsin.ntf_router.store.postgres.rows import (
    PROVIDERS,
    SUBSCRIPTIONS,
    TOKEN_COLUMNS,
    TOKENS,
    identity_of,
    provider_of,
    router_of,
    sql_list,
    time_of,
    token_of_row,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.lifecycles import VERIFIABLE
from tocsin.protocol.ntf.pushes import item_text, router_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

# One row for each token, which has many columns, with its notifications in arrays.
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
_RECEIVE: Final = "SELECT * FROM receive_notifications_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_SETTLE: Final = "SELECT place FROM settle_notifications_1($1, $2, $3, $4, $5, $6, $7, $8, $9) AS place"
_WITH_PENDING: Final = """
    SELECT DISTINCT token_id FROM pending_notifications WHERE token_id > $1{which} ORDER BY token_id LIMIT $2
"""
_TOKENS_WITH_PENDING: Final = _WITH_PENDING.format(which="")
_SHARDS_WITH_PENDING: Final = _WITH_PENDING.format(which=f" AND {SHARD_OF_TOKEN} = ANY($3::integer[])")
ACCOUNTING: Final = """
    SELECT outcome, sum(count)::bigint AS count FROM notification_totals GROUP BY outcome
    UNION ALL SELECT 'pending', count(*) FROM pending_notifications
"""


class PostgresNotifications:
    """Implements `NotificationStore`, which describes the methods."""

    _clients: NtfPool
    _background: NtfPool
    _fences: Fences | None
    _report_settled: ReportSettled | None = None

    _logged: bool = True

    def report_settled_to(self, report: ReportSettled, *, logged: bool = True) -> None:
        self._report_settled, self._logged = report, logged

    async def add_notifications(
        self,
        router: RouterLocation,
        received: Sequence[records.ReceivedNotification],
        before_commit: records.BeforeCommit | None = None,
    ) -> list[records.Recorded | records.NotRecorded]:
        if len({each.notifier_id for each in received}) == len(received):
            return await self._add_different(router, received, before_commit)

        async def statements(connection: Proxy) -> list[records.Recorded | records.NotRecorded]:
            if self._fences is not None:
                await self._fences.check_router(connection, router)
            batch = await ReceivedBatch.locked(connection, router, received)
            repeated = records.repeated_in_order(received, batch.last_nonce)
            results = [
                records.NotRecorded.DUPLICATE if place in repeated else batch.add(each)
                for place, each in enumerate(received)
            ]
            await batch.write(connection)
            if before_commit is not None:
                before_commit(results)
            return results

        return await self._clients.run(statements)

    async def _add_different(
        self,
        router: RouterLocation,
        received: Sequence[records.ReceivedNotification],
        before_commit: records.BeforeCommit | None,
    ) -> list[records.Recorded | records.NotRecorded]:
        """Store notifications of different queues: a function in the database decides about each of them."""
        lease = (None, None, None) if self._fences is None else self._fences.of_router(router)
        results: list[records.Recorded | records.NotRecorded] = []

        def decided(rows: Sequence[Record]) -> None:
            if rows and rows[0]["came_place"] < 0:
                raise LeaseLost(router_lease(router))
            results[:] = [records.NotRecorded.UNKNOWN_QUEUE] * len(received)
            for place, token_id, provider_text, again, gone_nonce, gone_time in rows:
                provider = provider_of(provider_text)
                if again:
                    results[place - 1] = records.NotRecorded.DUPLICATE
                elif provider is not None:
                    results[place - 1] = records.Recorded(token_id, provider, gone_nonce, gone_time)
            if before_commit is not None:
                before_commit(results)

        rows = await self._clients.call(
            _RECEIVE,
            *lease,
            identity_of(router),
            [each.notifier_id for each in received],
            [each.nonce for each in received],
            [each.sealed_meta for each in received],
            [each.received_at for each in received],
            list(PROVIDERS),
            records.KEPT_NOTIFICATIONS,
            before_commit=decided if self._logged else None,
        )
        if not self._logged:
            decided(rows)
        return results

    async def due_pushes(self, token_ids: Sequence[bytes]) -> list[records.DuePush]:
        """Return those of this instance: their leases are looked at last of all, because they are pushed at once."""
        if self._fences is not None:
            token_ids = self._fences.pushed_here(token_ids)
        rows = await self._clients.fetch(_DUE, list(token_ids))
        found = {row["token_id"]: row for row in rows}
        if self._fences is not None:
            token_ids = self._fences.pushed_here(token_ids)
        asked = [found[token_id] for token_id in dict.fromkeys(token_ids) if token_id in found]
        return [records.DuePush(token_of_row(row), _notifications_of_row(row)) for row in asked]

    async def settle(
        self,
        settled: Sequence[records.SettledNotification],
        before_commit: Callable[[Sequence[records.SettledNotification]], None] | None = None,
    ) -> None:
        first = {(each.subscription_id, each.nonce): each for each in reversed(settled)}
        if not first:
            return
        asked = list(first.values())
        leases: tuple[list[str] | None, list[int] | None, int | None] = (None, None, None)
        if self._fences is not None:
            # The instance that pushes the others now will settle them.
            leases = self._fences.of_tokens(each.token_id for each in asked)

        def decided(rows: Sequence[Record]) -> None:
            ended = [asked[row["place"] - 1] for row in rows]
            if before_commit is not None and ended:
                before_commit(ended)

        rows = await self._clients.call(
            _SETTLE,
            *leases,
            [token_lease(each.token_id) for each in asked],
            [each.subscription_id for each in asked],
            [each.token_id for each in asked],
            [each.nonce for each in asked],
            [each.outcome for each in asked],
            records.KEPT_NOTIFICATIONS,
            before_commit=decided if self._logged else None,
        )
        if not self._logged:
            decided(rows)

    async def tokens_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        if self._fences is None:
            rows = await self._background.fetch(_TOKENS_WITH_PENDING, after or b"", limit)
        else:
            rows = await self._background.fetch(
                _SHARDS_WITH_PENDING, after or b"", limit, self._fences.shards
            )
        return [row["token_id"] for row in rows]

    async def expire_pending(self, before: float) -> int:
        async def statements(connection: Proxy) -> int:
            rows = await end_pending(connection, END_OF_OLD, before, records.EXPIRED, self._report_settled)
            await prune(connection, list({row["token_id"] for row in rows}))
            return len(rows)

        return await self._background.run(statements)

    async def accounting(self) -> records.Accounting:
        return accounting_of_rows(await self._background.fetch(ACCOUNTING))


def accounting_of_rows(rows: Sequence[Record]) -> records.Accounting:
    counts = {row["outcome"]: row["count"] for row in rows}
    received, pending = counts.pop(RECEIVED, 0), counts.pop("pending", 0)
    accepted, superseded = counts.pop(records.ACCEPTED, 0), counts.pop(SUPERSEDED, 0)
    return records.Accounting(received, accepted, superseded, counts, pending)


def _notifications_of_row(row: Record) -> tuple[records.LastNotification, ...]:
    notifications: list[records.LastNotification] = []
    columns = row["subscription_ids"], row["notifier_ids"], row["hosts"], row["ports"], row["keyhashes"]
    facts = row["times"], row["nonces"], row["metas"], row["are_pending"]
    for subscription_id, notifier_id, host, port, keyhash, received_at, nonce, meta, is_pending in zip(
        *columns, *facts, strict=True
    ):
        router = router_of(host, port, keyhash)
        text = router_text(router) + item_text(notifier_id, int(received_at), nonce, meta)
        if is_pending:
            queue = NotifierQueue(router, notifier_id)
            notifications.append(
                records.PendingNotification(received_at, nonce, text, subscription_id, queue)
            )
        else:
            notifications.append(records.LastNotification(received_at, nonce, text))
    return tuple(notifications)


_AT_ROUTER: Final = "v.smp_keyhash = $1"
_LOCK_TOKENS: Final = f"""
    SELECT token_id, push_provider FROM tokens
    WHERE status IN {sql_list(VERIFIABLE)} AND token_id IN (
        SELECT s.token_id FROM {SUBSCRIPTIONS} WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($2::bytea[])
    )
    ORDER BY token_id FOR SHARE
"""  # noqa: S608
_LOCK_QUEUES: Final = f"""
    SELECT s.subscription_id, s.token_id, s.smp_notifier_id, s.status FROM {SUBSCRIPTIONS}
    WHERE {_AT_ROUTER} AND s.smp_notifier_id = ANY($2::bytea[]) AND s.token_id = ANY($3::bytea[])
    ORDER BY s.subscription_id FOR UPDATE OF s
"""  # noqa: S608
# Pending ones are locked, so that none is settled between being counted as superseded here and being replaced.
_LAST: Final = """
    WITH waiting AS (
        SELECT subscription_id, nonce, received_at FROM pending_notifications
        WHERE subscription_id = ANY($1::bytea[])
        ORDER BY subscription_id FOR UPDATE
    ), last AS (
        SELECT subscription_id, nmsg_nonce FROM last_notifications WHERE subscription_id = ANY($1::bytea[])
    )
    SELECT subscription_id, last.nmsg_nonce, waiting.nonce, waiting.received_at
    FROM waiting FULL JOIN last USING (subscription_id)
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


class ReceivedBatch:
    """Received notifications of one SMP router, decided here and written together.

    Tokens and subscriptions are locked.
    """

    def __init__(self) -> None:
        self._providers: dict[bytes, PushProvider] = {}
        self._subscriptions: dict[bytes, tuple[bytes, bytes]] = {}
        """Subscription ids and token ids by notifier id."""
        self._last: dict[bytes, bytes] = {}
        self._pending: dict[bytes, tuple[bytes, float]] = {}
        """Pending nonces and times by subscription id.

        The pending one may not be the last one, if the reference used the database meanwhile.
        """
        self._new: dict[bytes, tuple[bytes, records.ReceivedNotification]] = {}
        self._counts: Counter[str] = Counter()

    @classmethod
    async def locked(
        cls, connection: Proxy, router: RouterLocation, received: Sequence[records.ReceivedNotification]
    ) -> ReceivedBatch:
        batch = cls()
        where, notifier_ids = identity_of(router), list({each.notifier_id for each in received})
        for row in await connection.fetch(_LOCK_TOKENS, where, notifier_ids):
            if (provider := provider_of(row["push_provider"])) is not None:
                batch._providers[row["token_id"]] = provider
        for row in await connection.fetch(_LOCK_QUEUES, where, notifier_ids, list(batch._providers)):
            notifier_id = row["smp_notifier_id"]
            # Another server may have stored a queue under several addresses of its router: one gets the notification.
            if notifier_id not in batch._subscriptions or row["status"] == "ACTIVE":
                batch._subscriptions[notifier_id] = row["subscription_id"], row["token_id"]
        subscription_ids = [subscription_id for subscription_id, _ in batch._subscriptions.values()]
        for subscription_id, last, nonce, received_at in await connection.fetch(_LAST, subscription_ids):
            if last is not None:
                batch._last[subscription_id] = last
            if nonce is not None:
                batch._pending[subscription_id] = nonce, received_at
        return batch

    def last_nonce(self, notifier_id: bytes) -> bytes | None:
        found = self._subscriptions.get(notifier_id)
        return None if found is None else self._last.get(found[0])

    def add(self, received: records.ReceivedNotification) -> records.Recorded | records.NotRecorded:
        found = self._subscriptions.get(received.notifier_id)
        if found is None:
            return records.NotRecorded.UNKNOWN_QUEUE
        subscription_id, token_id = found
        if self._last.get(subscription_id) == received.nonce:
            return records.NotRecorded.DUPLICATE
        superseded = self._pending.get(subscription_id)
        self._counts[RECEIVED] += 1
        self._counts[SUPERSEDED] += superseded is not None
        self._last[subscription_id] = received.nonce
        self._pending[subscription_id] = received.nonce, received.received_at
        self._new[subscription_id] = token_id, received
        return records.Recorded(token_id, self._providers[token_id], *(superseded or (None, None)))

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
        token_ids = {token_id for token_id, _ in self._new.values()}
        await count_and_prune(connection, self._counts, list(token_ids))
