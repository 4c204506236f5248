"""Notifications of one SMP router on their way into PostgreSQL: locked, decided, written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tocsin.ntf_router.store.postgres.outcomes import PROVIDERS, RECEIVED, SUPERSEDED, count_and_prune
from tocsin.ntf_router.store.postgres.pools import Proxy
from tocsin.ntf_router.store.postgres.rows import SUBSCRIPTIONS, router_row, time_of
from tocsin.ntf_router.store.records import NotRecorded, ReceivedNotification, Recorded
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import PushProvider

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
# Pending ones are locked, so that none comes to its end between being counted as superseded here and being replaced.
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
    ) -> ReceivedBatch:
        batch = cls()
        where, notifier_ids = router_row(router), list({each.notifier_id for each in received})
        for row in await connection.fetch(_LOCK_TOKENS, *where, notifier_ids):
            if row["push_provider"] in PROVIDERS:
                batch._providers[row["token_id"]] = PROVIDERS[row["push_provider"]]
        for row in await connection.fetch(_LOCK_QUEUES, *where, notifier_ids, list(batch._providers)):
            batch._subscriptions[row["smp_notifier_id"]] = row["subscription_id"], row["token_id"]
        subscription_ids = [subscription_id for subscription_id, _ in batch._subscriptions.values()]
        for subscription_id, last, nonce, received_at in await connection.fetch(_LAST, subscription_ids):
            if last is not None:
                batch._last[subscription_id] = last
            if nonce is not None:
                batch._pending[subscription_id] = nonce, received_at
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
        token_ids = {token_id for token_id, _ in self._new.values()}
        await count_and_prune(connection, self._counts, list(token_ids))
