"""Tokens, subscriptions and last notifications in memory, and changes that concern several of them.

Nothing here waits, so each method is atomic. Changes of notifications are journalled here, because they have many
causes; callers journal all other changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

from tocsin.errors import StoreFull
from tocsin.ntf_router.store.logs.change_log import DirectChange
from tocsin.ntf_router.store.logs.store_log import NtfStoreChange, SubscriptionStatusSet
from tocsin.ntf_router.store.memory.subscription_table import ID_BYTES, SubscribedRouters, Subscription
from tocsin.ntf_router.store.memory.token_table import KeptToken, NotificationTable, TokenTable
from tocsin.ntf_router.store.records import (
    SUBSCRIPTION_REMOVED,
    TOKEN_REMOVED,
    RowLimit,
    RowLimits,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)
_NO_ID: Final = b"\xff" * ID_BYTES
"""The table's mark for ids of another length."""


class NtfTables:
    def __init__(self, journal: NtfJournal | None = None) -> None:
        self.tokens: Final = TokenTable()
        self.routers: Final = SubscribedRouters()
        self.notifications: Final = NotificationTable()
        self.direct: Final = DirectMarks()
        self.journal: NtfJournal = journal or NoNtfJournal()
        self.limits: RowLimits | None = None
        self.report_settled: Callable[[Sequence[SettledNotification]], None] | None = None

    def owner(self, row: int) -> KeptToken:
        return self.tokens.of_number(self.routers.table.token(row))

    def subscription_record(self, row: int) -> SubscriptionRecord:
        found = self.routers.table.get(row)
        return SubscriptionRecord(
            found.subscription_id,
            self.owner(row).record.token_id,
            self.routers.queue(row),
            found.notifier_key,
            found.status,
            found.associated,
        )

    def add_token(self, token: TokenRecord) -> bool:
        """Add a token. Returns False if it exists. Raises StoreFull."""
        if not self.tokens.is_new(token):
            return False
        if self.limits is not None and len(self.tokens) >= self.limits.tokens:
            raise StoreFull(RowLimit.TOKENS)
        self.tokens.add(token)
        return True

    def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        """Add a subscription. Returns False if it cannot be added. Raises StoreFull."""
        token = self.tokens.get(subscription.token_id)
        subscription_id, queue = subscription.subscription_id, subscription.queue
        if (
            token is None
            or len(subscription_id) != ID_BYTES
            or self.routers.row_of(queue) is not None
            or self.routers.table.find(subscription_id) is not None
        ):
            return False
        self._check_room(token)
        row = self.routers.add(
            Subscription(
                subscription_id,
                queue.notifier_id,
                subscription.notifier_key,
                token.number,
                self.routers.number_or_new(queue.router),
                subscription.status,
                subscription.service_associated,
            )
        )
        token.rows.append(row)
        self.routers.table.note_active(row, active=subscription.status is SubscriptionState.ACTIVE)
        return True

    def _check_room(self, token: KeptToken) -> None:
        """Raise StoreFull if the token can have no other subscription."""
        if self.limits is None:
            return
        if len(token.rows) >= self.limits.subscriptions_of_token:
            raise StoreFull(RowLimit.SUBSCRIPTIONS_OF_TOKEN)
        if len(self.routers.table) >= self.limits.subscriptions:
            raise StoreFull(RowLimit.SUBSCRIPTIONS)

    def add_direct(self, token_id: bytes, queue: NotifierQueue) -> bool:
        """Add a queue of direct notifications, as `add_subscription` does."""
        notifier_id = queue.notifier_id
        if len(notifier_id) != ID_BYTES or notifier_id == _NO_ID:
            return False
        token = self.tokens.get(token_id)
        if token is not None and self.notifications.before_change is not None:
            self.notifications.before_change(token)
        return self.add_subscription(
            SubscriptionRecord(notifier_id, token_id, queue, b"", SubscriptionState.ACTIVE, True)
        )

    def direct_rows(self, router: RouterLocation, notifier_ids: Sequence[bytes]) -> dict[bytes, int]:
        """Return the rows of those queues that are direct, by notifier id."""
        known, table = self.routers.router(router), self.routers.table
        if known is None or not table.direct_count:
            return {}
        found = [(each, table.find_queue(known.number, each)) for each in notifier_ids]
        return {each: row for each, row in found if row is not None and table.is_direct(row)}

    def set_gone(self, notifier_id: bytes, at: int) -> bool:
        """Note when the SMP router reported the queue as deleted; 0 means that it is alive."""
        row = self._direct_row(notifier_id)
        if row is None:
            return False
        if self.notifications.before_change is not None:
            self.notifications.before_change(self.owner(row))
        if at:
            self.direct.gone[notifier_id] = at
        else:
            self.direct.gone.pop(notifier_id, None)
        status = SubscriptionState.DELETED if at else SubscriptionState.ACTIVE
        self.routers.set_state(row, status, associated=True)
        return True

    def remove_direct(self, notifier_id: bytes) -> NotifierQueue | None:
        row = self._direct_row(notifier_id)
        if row is None:
            return None
        queue = self.routers.queue(row)
        self.remove_subscription(row, SUBSCRIPTION_REMOVED)
        return queue

    def _direct_row(self, notifier_id: bytes) -> int | None:
        row = self.routers.table.find(notifier_id)
        return row if row is not None and self.routers.table.is_direct(row) else None

    def remove_subscription(self, row: int, outcome: str) -> None:
        token = self.owner(row)
        if self.notifications.before_change is not None:
            self.notifications.before_change(token)
        self._keep_period(token, row)
        token.rows.remove(row)
        self._remove_row(token, row, outcome)

    def _keep_period(self, token: KeptToken, row: int) -> None:
        """Let the row's last notification begin the period of periodic pushes, also when the row is gone."""
        last = token.last.get(row) if token.last is not None else None
        if last is None or not token.record.cron_minutes:
            return
        received_at = int(last.received_at)
        if received_at > (token.record.cron_sent_at or 0):
            token.record = replace(token.record, cron_sent_at=received_at)
            self.journal.cron_sent(token.record.token_id, received_at)

    def remove_token(self, token: KeptToken) -> list[NotifierQueue]:
        """Remove the token with its subscriptions. Returns their queues."""
        queues = [self.routers.queue(row) for row in token.rows]
        for row in token.rows:
            self._remove_row(token, row, TOKEN_REMOVED)
        self.tokens.remove(token)
        return queues

    def activate(self, token: KeptToken) -> tuple[bool, list[NotifierQueue]]:
        """Activate the token. Returns whether anything changed, and the queues of the removed rivals."""
        rivals = [
            rival for rival in self.tokens.registrations(token.record.device_token) if rival is not token
        ]
        queues = [queue for rival in rivals for queue in self.remove_token(rival)]
        changed = token.record.status != _ACTIVE
        if changed:
            token.record = replace(token.record, status=_ACTIVE)
        return changed or bool(rivals), queues

    def change_state(self, row: int, status: SubscriptionStatus, *, associated: bool) -> bool:
        """Change the state, and journal it unless the journal's last line says the same. Returns whether it changed."""
        table = self.routers.table
        before = table.state(row)
        if before == (status, associated):
            return False
        self.routers.set_state(row, status, associated=associated)
        active = status is SubscriptionState.ACTIVE
        if not (active and before[1] == associated and table.noted_active(row)):
            table.note_active(row, active=active)
            self.journal.append(SubscriptionStatusSet(table.subscription_id(row), status, associated))
        return True

    def end_pending(self, token: KeptToken, row: int, outcome: str) -> bool:
        """Settle the pending notification. Returns False if there is none."""
        last = token.last.get(row) if token.last is not None else None
        if last is None or not last.pending:
            return False
        self.notifications.settle(token, last, outcome)
        self.journal.ended(self.routers.table.subscription_id(row), outcome)
        return True

    def end_all_pending(self, token: KeptToken, outcome: str, before: float | None = None) -> int:
        """Settle pending notifications that were received before a time. Returns how many."""
        rows = [
            row
            for row, last in (token.last or {}).items()
            if last.pending and (before is None or last.received_at < before)
        ]
        for row in rows:
            self._end_and_report(token, row, outcome)
        self.notifications.prune(token)
        return len(rows)

    def _end_and_report(self, token: KeptToken, row: int, outcome: str) -> None:
        last = token.last.get(row) if token.last is not None else None
        if self.end_pending(token, row, outcome) and last is not None and self.report_settled is not None:
            record, routers = token.record, self.routers
            settled = SettledNotification(
                record.token_id,
                routers.table.subscription_id(row),
                last.nonce,
                outcome,
                routers.queue(row),
                record.device_token.provider,
                last.received_at,
            )
            self.report_settled([settled])

    def _remove_row(self, token: KeptToken, row: int, outcome: str) -> None:
        """Remove the row everywhere but from the token's list of rows."""
        self._end_and_report(token, row, outcome)
        self.notifications.forget(token, row)
        if self.direct.gone:
            self.direct.gone.pop(self.routers.table.subscription_id(row), None)
        self.routers.remove(row)


class DirectMarks:
    def __init__(self) -> None:
        self.gone: Final[dict[bytes, int]] = {}
        """Time of the SMP router's report that the queue is deleted, by notifier id."""
        self._ended: Final[dict[bytes, int]] = {}
        """Time from which the mark of an ended queue may be forgotten, by `end_mark`."""

    def end(self, mark: bytes, until: int) -> None:
        if until > self._ended.get(mark, 0):
            self._ended[mark] = until

    def is_ended(self, mark: bytes, now: int) -> bool:
        return self._ended.get(mark, 0) > now

    def ended(self) -> Iterator[tuple[bytes, int]]:
        return iter(self._ended.items())

    def forget(self, now: int) -> int:
        """Forget ended queues whose packets have all expired. Returns how many."""
        expired = [each for each, until in self._ended.items() if until <= now]
        for mark in expired:
            del self._ended[mark]
        return len(expired)


class NtfJournal(Protocol):
    """Makes changes durable. All methods but `commit` note a change that was made in memory, and never fail."""

    def append(self, change: NtfStoreChange) -> None: ...

    def came(self, subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> None:
        """Note a new pending notification, which replaces the last one of its subscription."""

    def ended(self, subscription_id: bytes, outcome: str) -> None:
        """Note the outcome of a subscription's last notification."""

    def registered(self, token_id: bytes, at: int) -> None: ...

    def cron_sent(self, token_id: bytes, at: int) -> None: ...

    def direct(self, change: DirectChange) -> None: ...

    async def ready(self) -> None:
        """Return when changes become durable. Raises StoreError if they do not for too long: make none then."""

    async def commit(self) -> None:
        """Return when everything noted before is durable. Raises StoreError if that fails or takes too long."""


class NoNtfJournal:
    """Notes nothing: for a router that keeps nothing across stops, and while a store is read from its files."""

    def append(self, change: NtfStoreChange) -> None:
        pass

    def came(self, subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> None:
        pass

    def ended(self, subscription_id: bytes, outcome: str) -> None:
        pass

    def registered(self, token_id: bytes, at: int) -> None:
        pass

    def cron_sent(self, token_id: bytes, at: int) -> None:
        pass

    def direct(self, change: DirectChange) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def commit(self) -> None:
        pass
