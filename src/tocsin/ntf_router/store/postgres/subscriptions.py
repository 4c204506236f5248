"""Subscriptions and SMP routers of an NTF store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Final, NamedTuple

import asyncpg

from tocsin.crypto.credentials import Credentials
from tocsin.durable.postgres.batched_reads import BatchedReads
from tocsin.errors import DecodeError, StoreError, StoreFull
from tocsin.ntf_router.store.interface import QueueFacts, SubscriptionPage, WantedPage
from tocsin.ntf_router.store.postgres.fences import Fences
from tocsin.ntf_router.store.postgres.functions import ADDED, FULL, TOKEN_FULL
from tocsin.ntf_router.store.postgres.outcomes import (
    END_OF_SUBSCRIPTION,
    ReportSettled,
    end_pending,
    keep_periods,
)
from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy, rows_of
from tocsin.ntf_router.store.postgres.row_counts import RowCounts
from tocsin.ntf_router.store.postgres.rows import (
    NO_KEY,
    SUBSCRIPTION_COLUMNS,
    SUBSCRIPTIONS,
    TOKEN_COLUMNS,
    identity_of,
    queue_of_row,
    router_of_row,
    router_row,
    sql_list,
    subscription_of_row,
    token_of_row,
)
from tocsin.ntf_router.store.records import (
    SUBSCRIPTION_REMOVED,
    USED_ADDRESSES,
    Associations,
    RowLimit,
    SubscriptionRecord,
    TokenRecord,
    UsedRouter,
    WantedRouter,
)
from tocsin.ntf_router.store.service_chains import decode_chain, encode_chain
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import LIVE, WANTED
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, subscription_status_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.base64url import decode_base64url, encode_base64url

_WANTED: Final = f"s.status IN {sql_list(WANTED)}"
_AT_ROUTER: Final = "v.smp_keyhash = $1"
"""Whichever hosts and ports clients named: a router is its identity."""
_AT_ADDRESS: Final = "v.smp_host = $1 AND v.smp_port = $2 AND v.smp_keyhash = $3"
_KEYED: Final = f"s.smp_notifier_key <> '\\x{NO_KEY.hex()}'::bytea"
"""Excludes queues of direct notifications."""

FIRST_OF_SEVERAL: Final = "s.status <> 'ACTIVE', s.subscription_id"
"""The order of rows of one queue: servers that knew routers by their hosts may have stored it under several."""
_SUBSCRIPTIONS: Final = f"""
    SELECT {SUBSCRIPTION_COLUMNS}, {TOKEN_COLUMNS.replace("t.token_id,", "", 1)} FROM {SUBSCRIPTIONS}
    JOIN tokens t ON t.token_id = s.token_id LEFT JOIN token_registrations r ON r.token_id = t.token_id
    WHERE s.subscription_id = ANY($1::bytea[])
"""  # noqa: S608
_BY_QUEUE: Final = f"""
    SELECT DISTINCT ON (v.smp_keyhash, s.smp_notifier_id) {SUBSCRIPTION_COLUMNS} FROM {SUBSCRIPTIONS}
    WHERE (v.smp_keyhash, s.smp_notifier_id) IN (SELECT * FROM unnest($1::bytea[], $2::bytea[]))
    ORDER BY v.smp_keyhash, s.smp_notifier_id, {FIRST_OF_SEVERAL}
"""  # noqa: S608
ADD_SUBSCRIPTION: Final = """
    WITH known AS (
        SELECT smp_server_id FROM smp_servers WHERE smp_host = $1 AND smp_port = $2 AND smp_keyhash = $3
    ), made AS (
        INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash, ntf_service_id)
        SELECT $1, $2, $3, (
            SELECT ntf_service_id FROM smp_servers WHERE smp_keyhash = $3 AND ntf_service_id IS NOT NULL LIMIT 1
        ) WHERE NOT EXISTS (SELECT FROM known)
        ON CONFLICT (smp_host, smp_port, smp_keyhash) DO UPDATE SET smp_host = EXCLUDED.smp_host
        RETURNING smp_server_id
    )
    INSERT INTO subscriptions
        (smp_server_id, subscription_id, token_id, smp_notifier_id, smp_notifier_key, status, ntf_service_assoc)
    SELECT smp_server_id, $4, $5, $6, $7, $8, $9 FROM (TABLE known UNION ALL TABLE made) AS server
    WHERE NOT EXISTS (
        SELECT FROM subscriptions s JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
        WHERE s.smp_notifier_id = $6 AND v.smp_keyhash = $3
    )
    ON CONFLICT DO NOTHING
"""
_OTHER_ROUTERS: Final = f"""
    SELECT count(DISTINCT s.smp_server_id) FROM {SUBSCRIPTIONS} WHERE NOT ({_AT_ADDRESS}) AND s.token_id = $4
"""  # noqa: S608
_EXISTING_COLUMNS: Final = SUBSCRIPTION_COLUMNS.replace("s.token_id", "s.token_id AS owner_id", 1)
_FACTS: Final = f"""
    SELECT asked.place, {TOKEN_COLUMNS}, existing.*, (
        SELECT count(DISTINCT s.smp_server_id) FROM {SUBSCRIPTIONS}
        WHERE s.token_id = asked.token_id
            AND NOT (v.smp_host = asked.host AND v.smp_port = asked.port AND v.smp_keyhash = asked.keyhash)
    ) AS others
    FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[], $5::bytea[])
        WITH ORDINALITY AS asked (token_id, host, port, keyhash, notifier_id, place)
    LEFT JOIN tokens t ON t.token_id = asked.token_id
    LEFT JOIN token_registrations r ON r.token_id = t.token_id
    LEFT JOIN LATERAL (
        SELECT {_EXISTING_COLUMNS} FROM {SUBSCRIPTIONS}
        WHERE v.smp_keyhash = asked.keyhash AND s.smp_notifier_id = asked.notifier_id
        ORDER BY {FIRST_OF_SEVERAL} LIMIT 1
    ) AS existing ON true
"""  # noqa: S608
_ADD_SUBSCRIPTIONS: Final = """
    SELECT result FROM add_subscriptions_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS result
"""
_NEW_QUEUES: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id, s.smp_notifier_key FROM {SUBSCRIPTIONS}
    WHERE s.token_id = $1 AND s.status = 'NEW'
"""  # noqa: S608
_SET_STATUSES: Final = f"""
    UPDATE subscriptions s SET status = wanted.status, ntf_service_assoc = false
    FROM unnest($2::bytea[], $3::text[]) AS wanted (notifier_id, status), smp_servers v
    WHERE {_AT_ROUTER} AND s.smp_server_id = v.smp_server_id AND s.smp_notifier_id = wanted.notifier_id
        AND (s.status <> wanted.status OR s.ntf_service_assoc) AND {_KEYED}
"""  # noqa: S608
_SUBSCRIBED: Final = f"""
    WITH ours AS (
        UPDATE smp_servers v SET ntf_service_id = $3
        WHERE {_AT_ROUTER} AND $3::bytea IS NOT NULL AND ntf_service_id IS DISTINCT FROM $3
    )
    UPDATE subscriptions s SET status = 'ACTIVE', ntf_service_assoc = $3::bytea IS NOT NULL FROM smp_servers v
    WHERE {_AT_ROUTER} AND s.smp_server_id = v.smp_server_id AND s.smp_notifier_id = ANY($2::bytea[])
        AND (s.status <> 'ACTIVE' OR s.ntf_service_assoc <> ($3::bytea IS NOT NULL)) AND {_KEYED}
"""  # noqa: S608
_DISCONNECTED: Final = f"""
    UPDATE subscriptions s SET status = 'INACTIVE' FROM smp_servers v
    WHERE {_AT_ROUTER} AND s.smp_server_id = v.smp_server_id
        AND NOT s.ntf_service_assoc AND s.status IN {sql_list(LIVE)}
"""  # noqa: S608
_FORGET_SERVICE: Final = f"""
    WITH forgotten AS (
        UPDATE smp_servers v SET ntf_service_id = NULL WHERE {_AT_ROUTER} AND ntf_service_id IS NOT NULL
    )
    UPDATE subscriptions s
    SET ntf_service_assoc = false, status = CASE WHEN {_WANTED} THEN 'INACTIVE' ELSE s.status END
    FROM smp_servers v
    WHERE {_AT_ROUTER} AND s.smp_server_id = v.smp_server_id AND s.ntf_service_assoc AND {_KEYED}
"""  # noqa: S608
# The hash is the XOR of the MD5 of the ids (smp.md Appendix C), which PostgreSQL 14 and newer can compute.
_USED: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, v.ntf_service_id,
        count(*) FILTER (WHERE s.ntf_service_assoc) AS associated,
        coalesce(bit_xor(('x' || md5(s.smp_notifier_id))::bit(128)) FILTER (WHERE s.ntf_service_assoc), 0::bit(128))
            AS combined,
        count(*) FILTER (WHERE NOT s.ntf_service_assoc) AS individual,
        count(*) FILTER (WHERE s.ntf_service_assoc AND NOT {_KEYED}) AS direct,
        v.ntf_service_id IS NULL AND coalesce(bool_and(s.status = 'NEW' OR s.ntf_service_assoc), true) AS untried,
        bool_or(EXISTS (SELECT FROM tokens t WHERE t.token_id = s.token_id AND t.status = 'ACTIVE'))
            FILTER (WHERE v.ntf_service_id IS NULL AND (s.status = 'NEW' OR s.ntf_service_assoc)) AS active
    FROM smp_servers v {{join}} subscriptions s ON s.smp_server_id = v.smp_server_id AND {_WANTED}
    {{where}} GROUP BY v.smp_server_id
"""  # noqa: S608
_USED_ROUTERS: Final = _USED.format(join="JOIN", where="")
_USED_ROUTER: Final = _USED.format(join="LEFT JOIN", where=f"WHERE {_AT_ROUTER}")
# Version 7.0 has a certificate for each address. That of a service which is known there is the best one.
_CERTIFICATE: Final = """
    SELECT ntf_service_cert AS certificates, ntf_service_priv_key AS private_key FROM smp_servers
    WHERE smp_keyhash = $1 AND ntf_service_cert IS NOT NULL AND ntf_service_priv_key IS NOT NULL
    ORDER BY ntf_service_id IS NULL, smp_server_id LIMIT 1
"""
_OWN_CERTIFICATE: Final = "SELECT certificates, private_key FROM service_credentials WHERE smp_keyhash = $1"
SET_CERTIFICATE: Final = """
    UPDATE smp_servers SET ntf_service_cert = $2, ntf_service_cert_hash = $3, ntf_service_priv_key = $4
    WHERE smp_keyhash = $1
"""
ADD_OWN_CERTIFICATE: Final = """
    INSERT INTO service_credentials (smp_keyhash, certificates, private_key)
    SELECT $1, $2, $3 WHERE EXISTS (SELECT FROM smp_servers WHERE smp_keyhash = $1)
"""
_ANY_WANTED: Final = (
    f"EXISTS (SELECT FROM subscriptions s WHERE s.smp_server_id = v.smp_server_id AND {_WANTED})"
)
# Addresses of one router are ordered by their queues. They are counted only where there are several.
_WANTED_ROUTERS: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash,
        v.ntf_service_id IS NULL AND NOT EXISTS (
            SELECT FROM subscriptions s WHERE s.smp_server_id = v.smp_server_id AND NOT s.ntf_service_assoc
                AND s.status IN {sql_list(WANTED - {SubscriptionState.NEW})}
        ) AS untried,
        v.ntf_service_id IS NULL AND EXISTS (
            SELECT FROM subscriptions s JOIN tokens t ON t.token_id = s.token_id
            WHERE s.smp_server_id = v.smp_server_id AND t.status = 'ACTIVE'
                AND (s.status = 'NEW' OR s.ntf_service_assoc AND {_WANTED})
        ) AS active,
        CASE WHEN count(*) OVER (PARTITION BY v.smp_keyhash) > 1 THEN (
            SELECT count(*) FROM subscriptions s WHERE s.smp_server_id = v.smp_server_id AND {_WANTED}
        ) END AS queues
    FROM smp_servers v WHERE {_ANY_WANTED} {{among}}
    ORDER BY queues DESC
"""  # noqa: S608
_ALL_WANTED_ROUTERS: Final = _WANTED_ROUTERS.format(among="")
_SOME_WANTED_ROUTERS: Final = _WANTED_ROUTERS.format(among="AND v.smp_keyhash = ANY($1::bytea[])")
_ASSOCIATIONS: Final = f"""
    SELECT v.ntf_service_id, EXISTS (
        SELECT FROM subscriptions s
        WHERE s.smp_server_id = v.smp_server_id AND s.ntf_service_assoc AND {_WANTED}
    ) AS any
    FROM smp_servers v WHERE {_AT_ROUTER}
"""  # noqa: S608
_RECENT: Final = f"""
    SELECT v.smp_keyhash, s.smp_notifier_id
    FROM (SELECT subscription_id, sent_at FROM last_notifications ORDER BY sent_at DESC LIMIT $1) AS last
    JOIN subscriptions s ON s.subscription_id = last.subscription_id
    JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
    WHERE {_WANTED} AND {_KEYED}
    ORDER BY last.sent_at DESC
"""  # noqa: S608
_PAGE: Final = f"""
    WITH page AS (
        SELECT s.subscription_id, s.smp_notifier_id, s.smp_notifier_key FROM {SUBSCRIPTIONS}
        WHERE {_AT_ROUTER} AND {_WANTED} AND ($4 OR NOT s.ntf_service_assoc) AND s.subscription_id > $2
            AND {_KEYED} AND {{which}}
        ORDER BY s.subscription_id LIMIT $3
    ), marked AS (
        UPDATE subscriptions s SET status = 'PENDING' FROM page
        WHERE s.subscription_id = page.subscription_id AND s.status <> 'PENDING'
    )
    SELECT * FROM page ORDER BY subscription_id
"""  # noqa: S608
_FIRST_PAGE: Final = _PAGE.format(which="s.smp_notifier_id = ANY($5::bytea[])")
_NEXT_PAGE: Final = _PAGE.format(which="($5::bytea[] IS NULL OR s.smp_notifier_id <> ALL($5::bytea[]))")


class NewSubscription(NamedTuple):
    """A subscription to be added."""

    record: SubscriptionRecord
    has_room: bool
    """Whether the limit of all subscriptions allows it."""


async def execute_at(
    pool: NtfPool, fences: Fences | None, router: RouterLocation, statement: str, *arguments: object
) -> int:
    """Execute a change about an SMP router, with the fence of its lease. Returns the number of changed rows."""
    if fences is None:
        return await pool.execute(statement, *arguments)

    async def statements(connection: Proxy) -> int:
        await fences.check_router(connection, router)
        return rows_of(await connection.execute(statement, *arguments))

    return await pool.run(statements)


class PostgresSubscriptions:
    """Implements `SubscriptionStore`, which describes the methods."""

    _counts: RowCounts
    _clients: NtfPool
    _background: NtfPool
    _fences: Fences | None
    _report_settled: ReportSettled | None
    _subscriptions: BatchedReads[bytes, tuple[SubscriptionRecord, TokenRecord]]
    _by_queue: BatchedReads[tuple[bytes, bytes], SubscriptionRecord]
    _facts: BatchedReads[tuple[bytes, NotifierQueue], QueueFacts]
    _additions: BatchedReads[NewSubscription, str]
    _has_certificates: bool = False
    """The reference's tables are those of 7.0, with columns for certificates."""

    async def subscription(self, subscription_id: bytes) -> tuple[SubscriptionRecord, TokenRecord] | None:
        return await self._subscriptions.row(subscription_id)

    async def subscription_of(self, queue: NotifierQueue) -> SubscriptionRecord | None:
        return await self._by_queue.row((identity_of(queue.router), queue.notifier_id))

    async def queue_facts(self, token_id: bytes, queue: NotifierQueue) -> QueueFacts:
        facts = await self._facts.row((token_id, queue))
        assert facts is not None
        return facts

    async def _find_facts(
        self, asked: Sequence[tuple[bytes, NotifierQueue]]
    ) -> dict[tuple[bytes, NotifierQueue], QueueFacts]:
        rows = [(token_id, *router_row(queue.router), queue.notifier_id) for token_id, queue in asked]
        columns = map(list, zip(*rows, strict=True))
        found: dict[tuple[bytes, NotifierQueue], QueueFacts] = {}
        for row in await self._clients.fetch(_FACTS, *columns):
            token = None if row["token_id"] is None else token_of_row(row)
            existing = None
            if row["subscription_id"] is not None:
                existing = replace(subscription_of_row(row), token_id=row["owner_id"])
            found[asked[row["place"] - 1]] = QueueFacts(token, existing, row["others"])
        return found

    async def _find_subscriptions(
        self, subscription_ids: Sequence[bytes]
    ) -> dict[bytes, tuple[SubscriptionRecord, TokenRecord]]:
        rows = await self._clients.fetch(_SUBSCRIPTIONS, subscription_ids)
        return {row["subscription_id"]: (subscription_of_row(row), token_of_row(row)) for row in rows}

    async def _find_queues(
        self, queues: Sequence[tuple[bytes, bytes]]
    ) -> dict[tuple[bytes, bytes], SubscriptionRecord]:
        identities, notifier_ids = zip(*queues, strict=True)
        rows = await self._clients.fetch(_BY_QUEUE, identities, notifier_ids)
        return {(row["smp_keyhash"], row["smp_notifier_id"]): subscription_of_row(row) for row in rows}

    async def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        with self._counts.subscriptions.adding() as addition:
            result = await self._additions.row(NewSubscription(subscription, addition.has_room))
            addition.added = result == ADDED
            if result == TOKEN_FULL:
                raise StoreFull(RowLimit.SUBSCRIPTIONS_OF_TOKEN)
            if result == FULL:
                raise StoreFull(RowLimit.SUBSCRIPTIONS)
        return addition.added

    async def _write_subscriptions(self, new: Sequence[NewSubscription]) -> dict[NewSubscription, str]:
        """Add subscriptions of several connections. Locks are taken in the order of tokens."""
        new = sorted(new, key=lambda each: each.record.token_id)
        rows = [
            (
                *router_row(record.queue.router),
                record.subscription_id,
                record.token_id,
                record.queue.notifier_id,
                record.notifier_key or NO_KEY,
                subscription_status_text(record.status),
                record.service_associated,
                has_room,
            )
            for record, has_room in new
        ]
        columns = map(list, zip(*rows, strict=True))
        results = await self._clients.fetch(_ADD_SUBSCRIPTIONS, *columns, self._counts.most_of_token)
        return {each: row["result"] for each, row in zip(new, results, strict=True)}

    async def delete_subscription(self, subscription_id: bytes) -> bool:
        async def statements(connection: Proxy) -> bool:
            await keep_periods(connection, [subscription_id])
            found = await connection.fetchval(
                "SELECT true FROM subscriptions WHERE subscription_id = $1 FOR UPDATE", subscription_id
            )
            if not found:
                return False
            await end_pending(
                connection, END_OF_SUBSCRIPTION, subscription_id, SUBSCRIPTION_REMOVED, self._report_settled
            )
            await connection.execute("DELETE FROM subscriptions WHERE subscription_id = $1", subscription_id)
            return True

        with self._counts.removing() as removal:
            found = await self._clients.run(statements)
            removal.subscriptions = int(found)
        return found

    async def other_routers_of(self, token_id: bytes, router: RouterLocation) -> int:
        row = await self._clients.fetchrow(_OTHER_ROUTERS, *router_row(router), token_id)
        return 0 if row is None else int(row[0])

    async def new_queues_of(self, token_id: bytes) -> list[tuple[NotifierQueue, bytes]]:
        rows = await self._clients.fetch(_NEW_QUEUES, token_id)
        return [(queue_of_row(row), row["smp_notifier_key"]) for row in rows]

    async def set_statuses(
        self, router: RouterLocation, statuses: Sequence[tuple[bytes, SubscriptionStatus]]
    ) -> int:
        last = {notifier_id: subscription_status_text(status) for notifier_id, status in statuses}
        if not last:
            return 0
        arguments = identity_of(router), list(last), list(last.values())
        return await execute_at(self._clients, self._fences, router, _SET_STATUSES, *arguments)

    async def subscribed(
        self, router: RouterLocation, notifier_ids: Sequence[bytes], service_id: bytes | None
    ) -> int:
        arguments = identity_of(router), list(notifier_ids), service_id
        return await execute_at(self._clients, self._fences, router, _SUBSCRIBED, *arguments)

    async def disconnected(self, router: RouterLocation) -> int:
        return await execute_at(self._background, self._fences, router, _DISCONNECTED, identity_of(router))

    async def forget_service(self, router: RouterLocation) -> int:
        return await execute_at(self._background, self._fences, router, _FORGET_SERVICE, identity_of(router))

    async def service_credentials(self, router: RouterLocation) -> Credentials | None:
        """Look in the columns of 7.0 if there are some, then in our own table, which may be from before."""
        row = None
        if self._has_certificates:
            row = await self._background.fetchrow(_CERTIFICATE, identity_of(router))
        if row is None:
            row = await self._background.fetchrow(_OWN_CERTIFICATE, identity_of(router))
        try:
            return None if row is None else decode_chain(row["certificates"], row["private_key"])
        except DecodeError:
            raise StoreError(
                "a service's certificate in the database is damaged: restore it from a backup"
            ) from None

    async def set_service_credentials(self, router: RouterLocation, credentials: Credentials | None) -> None:
        async def statements(connection: Proxy) -> None:
            if self._fences is not None:
                await self._fences.check_router(connection, router)
            key_hash = identity_of(router)
            chain = key = fingerprint = None
            if credentials is not None:
                chain, key = encode_chain(credentials), credentials.private_key
                fingerprint = encode_base64url(credentials.fingerprint).encode()
            if self._has_certificates:
                await connection.execute(SET_CERTIFICATE, key_hash, chain, fingerprint, key)
            await connection.execute("DELETE FROM service_credentials WHERE smp_keyhash = $1", key_hash)
            if chain is not None and not self._has_certificates:
                await connection.execute(ADD_OWN_CERTIFICATE, key_hash, chain, key)

        await self._background.run(statements)

    async def used_routers(self) -> list[UsedRouter]:
        found: dict[bytes, list[asyncpg.Record]] = {}
        for row in await self._background.fetch(_USED_ROUTERS):
            found.setdefault(row["smp_keyhash"], []).append(row)
        return [_used_of_rows(rows) for rows in found.values()]

    async def used_router(self, router: RouterLocation) -> UsedRouter | None:
        rows = await self._rows_with_one_service(self._background, _USED_ROUTER, router)
        return _used_of_rows(rows) if rows else None

    async def _rows_with_one_service(
        self, pool: NtfPool, statement: str, router: RouterLocation
    ) -> list[asyncpg.Record]:
        """Return a row for each address of the router.

        A server that had a certificate for each address left several services. Ours can be one of them only, so they
        are all forgotten.
        """
        rows = await pool.fetch(statement, identity_of(router))
        if len({row["ntf_service_id"] for row in rows} - {None}) > 1:
            await self.forget_service(router)
            rows = await pool.fetch(statement, identity_of(router))
        return rows

    async def wanted_routers(self, among: Sequence[RouterLocation] | None = None) -> list[WantedRouter]:
        # By the clients' pool: it finds rows by their keys, however many there are.
        if among is None:
            rows = await self._clients.fetch(_ALL_WANTED_ROUTERS)
        else:
            rows = await self._clients.fetch(_SOME_WANTED_ROUTERS, [identity_of(each) for each in among])
        found: dict[bytes, list[asyncpg.Record]] = {}
        for row in rows:
            found.setdefault(row["smp_keyhash"], []).append(row)
        wanted = []
        for addresses in found.values():
            untried = all(row["untried"] for row in addresses)
            if not untried or any(row["active"] for row in addresses):
                first, *others = [router_of_row(row) for row in addresses[:USED_ADDRESSES]]
                wanted.append(WantedRouter(first, tuple(others), untried))
        return wanted

    async def associations(self, router: RouterLocation) -> Associations:
        rows = await self._rows_with_one_service(self._clients, _ASSOCIATIONS, router)
        service_id = next((row["ntf_service_id"] for row in rows if row["ntf_service_id"] is not None), None)
        return Associations(service_id, any(row["any"] for row in rows))

    async def recently_active(self, limit: int) -> list[tuple[bytes, bytes]]:
        rows = await self._background.fetch(_RECENT, limit)
        return [(decode_base64url(row["smp_keyhash"].decode()), row["smp_notifier_id"]) for row in rows]

    async def queues_to_subscribe(self, router: RouterLocation, page: WantedPage) -> SubscriptionPage:
        """Return a page. The cursor is a subscription id, empty behind the first page of those that are named."""
        first, limit = page.first, page.limit
        statement = _FIRST_PAGE if first and page.after is None else _NEXT_PAGE
        if statement is _FIRST_PAGE:
            limit = max(limit, len(first))
        arguments = identity_of(router), page.after or b"", limit, page.with_associated, list(first) or None
        fences = self._fences

        async def statements(connection: Proxy) -> list[asyncpg.Record]:
            assert fences is not None
            await fences.check_router(connection, router)
            return await connection.fetch(statement, *arguments)

        if fences is None:
            rows = await self._background.fetch(statement, *arguments)
        else:
            rows = await self._background.run(statements)
        queues = tuple([(row["smp_notifier_id"], row["smp_notifier_key"]) for row in rows])
        if statement is _FIRST_PAGE:
            return SubscriptionPage(queues, b"")
        return SubscriptionPage(queues, rows[-1]["subscription_id"] if len(rows) == limit else None)


def _used_of_rows(rows: Sequence[asyncpg.Record]) -> UsedRouter:
    """Return one SMP router of the rows of its addresses."""
    rows = sorted(rows, key=lambda row: row["associated"] + row["individual"], reverse=True)
    first, *others = [router_of_row(row) for row in rows[:USED_ADDRESSES]]
    associated, individual = sum(row["associated"] for row in rows), sum(row["individual"] for row in rows)
    untried = all(row["untried"] for row in rows) and bool(associated + individual)
    return UsedRouter(
        first,
        next((row["ntf_service_id"] for row in rows if row["ntf_service_id"] is not None), None),
        associated,
        reduce(_xor, [row["combined"].bytes for row in rows]),
        individual,
        untried,
        not untried or any(row["active"] for row in rows),
        tuple(others),
        sum(row["direct"] for row in rows),
    )


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))
