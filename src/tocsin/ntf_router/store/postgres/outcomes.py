"""Totals of notifications by outcome, and removal of old notifications.

The totals are kept in parts, one for each of a few connections, so that transactions do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from asyncpg import Record

from tocsin.ntf_router.store.postgres.functions import PRUNE
from tocsin.ntf_router.store.postgres.pools import Proxy
from tocsin.ntf_router.store.postgres.rows import provider_of, queue_of_row
from tocsin.ntf_router.store.records import KEPT_NOTIFICATIONS, SettledNotification

RECEIVED: Final = "received"
SUPERSEDED: Final = "superseded"

_COUNT: Final = """
    INSERT INTO notification_totals AS total (outcome, part, count)
    SELECT outcome, pg_backend_pid() % 64, count
    FROM unnest($1::text[], $2::bigint[]) AS came (outcome, count) ORDER BY outcome
    ON CONFLICT (outcome, part) DO UPDATE SET count = total.count + EXCLUDED.count
"""
# Both in one statement, because they concern different tables. The second one's parameters follow those of the first.
_COUNT_AND_PRUNE: Final = f"WITH counted AS ({_COUNT}) {PRUNE.replace('$2', '$4').replace('$1', '$3')}"

_END: Final = """
    WITH gone AS (
        DELETE FROM pending_notifications WHERE {which}
        RETURNING subscription_id, token_id, nonce, received_at
    )
    SELECT gone.token_id, gone.subscription_id, gone.nonce, gone.received_at, t.push_provider,
        v.smp_host, v.smp_port, v.smp_keyhash, s.smp_notifier_id
    FROM gone
    LEFT JOIN tokens t ON t.token_id = gone.token_id
    LEFT JOIN subscriptions s ON s.subscription_id = gone.subscription_id
    LEFT JOIN smp_servers v ON v.smp_server_id = s.smp_server_id
"""
# The last notification of a token begins its period of periodic pushes, also when the notification is deleted.
_KEEP_PERIODS: Final = """
    UPDATE tokens t SET cron_sent_at = latest.at
    FROM (
        SELECT token_id, max(floor(extract(epoch FROM sent_at)))::bigint AS at FROM last_notifications
        WHERE subscription_id = ANY($1::bytea[]) GROUP BY token_id
    ) AS latest
    WHERE t.token_id = latest.token_id AND t.cron_interval > 0 AND coalesce(t.cron_sent_at, 0) < latest.at
"""
END_OF_TOKENS: Final = _END.format(which="token_id = ANY($1::bytea[])")
END_OF_SUBSCRIPTION: Final = _END.format(which="subscription_id = $1")
END_OF_SUBSCRIPTIONS: Final = _END.format(which="subscription_id = ANY($1::bytea[])")
END_OF_OLD: Final = _END.format(which="received_at < $1")
ReportSettled: TypeAlias = Callable[[Sequence[SettledNotification]], None]


async def end_pending(
    connection: Proxy, statement: str, which: object, outcome: str, report: ReportSettled | None
) -> list[Record]:
    """Settle pending notifications: count and report them. Returns their rows.

    Notifications whose token or subscription an operator deleted with SQL are counted, but not reported.
    """
    rows = await connection.fetch(statement, which)
    await count_outcomes(connection, {outcome: len(rows)})
    known = [
        (row, provider)
        for row in rows
        if row["smp_host"] is not None and (provider := provider_of(row["push_provider"] or "")) is not None
    ]
    if known and report is not None:
        report(
            [
                SettledNotification(
                    row["token_id"],
                    row["subscription_id"],
                    row["nonce"],
                    outcome,
                    queue_of_row(row),
                    provider,
                    row["received_at"],
                )
                for row, provider in known
            ]
        )
    return list(rows)


async def keep_periods(connection: Proxy, subscription_ids: Sequence[bytes]) -> None:
    """Let periods of periodic pushes begin with the last notifications of subscriptions that will be deleted.

    It locks tokens, so call it before locking subscriptions. If they are not deleted, nothing is due earlier or later.
    """
    await connection.execute(_KEEP_PERIODS, list(subscription_ids))


async def count_outcomes(connection: Proxy, counts: Mapping[str, int]) -> None:
    counted = {outcome: count for outcome, count in counts.items() if count}
    if counted:
        await connection.execute(_COUNT, list(counted), list(counted.values()))


async def count_and_prune(connection: Proxy, counts: Mapping[str, int], token_ids: Sequence[bytes]) -> None:
    """Count outcomes of notifications of these tokens, and prune the tokens."""
    counted = {outcome: count for outcome, count in counts.items() if count}
    if counted or token_ids:
        await connection.execute(
            _COUNT_AND_PRUNE, list(counted), list(counted.values()), list(token_ids), KEPT_NOTIFICATIONS
        )


async def prune(connection: Proxy, token_ids: Sequence[bytes]) -> None:
    if token_ids:
        await connection.execute(PRUNE, list(token_ids), KEPT_NOTIFICATIONS)
