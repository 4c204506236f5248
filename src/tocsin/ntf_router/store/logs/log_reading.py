"""Reads the files of an NTF router's folder into a store in memory, without changing any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar, assert_never

from tocsin.durable.log_fields import BadLogLine, decode_field
from tocsin.durable.log_files import records_of
from tocsin.errors import DecodeError
from tocsin.ntf_router.store.logs.change_log import (
    AnywhereLine,
    ChangeLine,
    CronSentAt,
    FailedCount,
    NotificationCame,
    NotificationEnded,
    NotificationKept,
    QueuesAssociated,
    QueuesEnded,
    QueuesGone,
    QueuesRemoved,
    StateBegins,
    StateLine,
    TokenRegisteredAt,
    Totals,
    decode_ntf_change_line,
    decode_state_line,
)
from tocsin.ntf_router.store.logs.store_log import (
    CronSet,
    NtfStoreChange,
    ServiceSet,
    SubscriptionAdded,
    SubscriptionRemoved,
    SubscriptionStatusSet,
    TokenAdded,
    TokenRemoved,
    TokenReplaced,
    TokenStatusSet,
    TokenUsed,
    decode_ntf_store_line,
)
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.ntf_router.store.memory.token_table import KeptNotification, KeptToken
from tocsin.ntf_router.store.records import SUBSCRIPTION_REMOVED, TokenRecord
from tocsin.protocol.ntf.pushes import PushedNotification
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

# If several tokens have the same registration, the first in the best state stays (ntf.md 5.4).
_BEST_FIRST: Final = (
    TokenState.ACTIVE,
    TokenState.INVALID,
    TokenState.EXPIRED,
    TokenState.CONFIRMED,
    TokenState.REGISTERED,
    TokenState.NEW,
)
T = TypeVar("T")

_REGISTERED: Final = TokenStatus(TokenState.REGISTERED)


class NtfRestorer:
    """Applies the store log, then the state, then the changes logs; then comes `finish`.

    A crash may leave notifications of removed subscriptions: the removal was in the store log, which is written first,
    and the outcome would have been in the changes log. `finish` counts them.
    """

    def __init__(self, tables: NtfTables) -> None:
        self._tables: Final = tables
        self._orphans: Final[set[bytes]] = set()
        """Subscriptions that do not exist, but have a pending notification."""

    def store_change(self, change: NtfStoreChange) -> bool:
        """Apply a change. Returns False if its subject does not exist, or exists already."""
        match change:
            case TokenAdded(token):
                return self._add_token(token)
            case SubscriptionAdded(subscription):
                return self._tables.add_subscription(subscription)
            case ServiceSet(router, service_id):
                self._tables.routers.set_service(router, service_id)
                return True
            case SubscriptionStatusSet(subscription_id, status, associated):
                row = self._tables.routers.table.find(subscription_id)
                if row is not None:
                    self._tables.routers.set_state(row, status, associated=associated)
                    self._tables.routers.table.note_active(row, active=status is SubscriptionState.ACTIVE)
                return row is not None
            case SubscriptionRemoved(subscription_id):
                row = self._tables.routers.table.find(subscription_id)
                if row is not None:
                    self._tables.remove_subscription(row, SUBSCRIPTION_REMOVED)
                return row is not None
            case TokenStatusSet() | TokenReplaced() | CronSet() | TokenUsed() | TokenRemoved():
                kept = self._tables.tokens.get(change.token_id)
                return kept is not None and self._change_token(kept, change)
            case _:
                assert_never(change)

    def _change_token(
        self, token: KeptToken, change: TokenStatusSet | TokenReplaced | CronSet | TokenUsed | TokenRemoved
    ) -> bool:
        match change:
            case TokenStatusSet(_, status) if status.state is TokenState.ACTIVE:
                self._tables.activate(token)
            case TokenStatusSet(_, status):
                token.record = replace(token.record, status=status)
            case TokenReplaced(_, device_token, code):
                record = replace(token.record, device_token=device_token, code=code, status=_REGISTERED)
                return self._tables.tokens.change_device_token(token, record)
            case CronSet(_, minutes):
                token.record = replace(token.record, cron_minutes=minutes)
            case TokenUsed(_, day):
                token.record = replace(token.record, updated_at=day)
            case TokenRemoved():
                self._tables.remove_token(token)
            case _:
                assert_never(change)
        return True

    def state(self, line: StateLine) -> bool:
        notifications = self._tables.notifications
        match line:
            case NotificationKept(subscription_id, received_at, pending, nonce, sealed_meta):
                row = self._tables.routers.table.find(subscription_id)
                if row is None:
                    if pending:
                        self._orphans.add(subscription_id)
                    return False
                kept = self._kept(row, received_at, nonce, sealed_meta, pending=pending)
                notifications.put(self._tables.owner(row), row, kept)
            case Totals(received, accepted, superseded):
                notifications.received = received
                notifications.accepted = accepted
                notifications.superseded = superseded
            case FailedCount(outcome, count):
                notifications.failed[outcome] = count
            case StateBegins():
                pass
            case _:
                return self._anywhere(line)
        return True

    def _anywhere(self, line: AnywhereLine) -> bool:
        """Apply a line that state and changes share. Returns False if its subjects do not exist, or exist already."""
        tables = self._tables
        match line:
            case TokenRegisteredAt() | CronSentAt():
                return self._token_fact(line)
            case QueuesAssociated(token_id, router, notifier_ids):
                queues = [NotifierQueue(router, each) for each in notifier_ids]
                return sum(tables.add_direct(token_id, queue) for queue in queues) > 0
            case QueuesEnded(marks, until):
                for mark in marks:
                    tables.direct.end(mark, until)
                    tables.remove_direct(mark)  # before marks, these lines had the ids of queues
                return True
            case QueuesGone(notifier_ids, at):
                return sum(tables.set_gone(each, at) for each in notifier_ids) > 0
            case QueuesRemoved(notifier_ids):
                return sum(tables.remove_direct(each) is not None for each in notifier_ids) > 0
            case _:
                assert_never(line)

    def change(self, line: ChangeLine) -> bool:
        match line:
            case NotificationCame(subscription_id, received_at, nonce, sealed_meta):
                row = self._tables.routers.table.find(subscription_id)
                if row is None:
                    self._orphan_came(subscription_id)
                    return False
                kept = self._kept(row, received_at, nonce, sealed_meta, pending=True)
                self._tables.notifications.receive(self._tables.owner(row), row, kept)
            case NotificationEnded(subscription_id, outcome):
                row = self._tables.routers.table.find(subscription_id)
                if row is None:
                    if subscription_id in self._orphans:
                        self._orphans.discard(subscription_id)
                        self._tables.notifications.count_end(outcome)
                    return False
                token = self._tables.owner(row)
                self._tables.end_pending(token, row, outcome)
                self._tables.notifications.prune(token)
            case _:
                return self._anywhere(line)
        return True

    def last_notification(self, token_id: bytes, item: PushedNotification) -> bool:
        """Apply a last notification of the reference, which does not record whether it was pushed."""
        row = self._tables.routers.row_of(item.queue)
        if row is None or self._tables.owner(row).record.token_id != token_id:
            return False
        kept = self._kept(row, float(item.received_at), item.nonce, item.sealed_meta, pending=False)
        self._tables.notifications.put(self._tables.owner(row), row, kept)
        return True

    def _kept(
        self, row: int, received_at: float, nonce: bytes, sealed_meta: bytes, *, pending: bool
    ) -> KeptNotification:
        notifier_id = self._tables.routers.table.notifier_id(row)
        return KeptNotification.of(notifier_id, received_at, nonce, sealed_meta, pending=pending)

    def finish(self) -> None:
        for _ in self._orphans:
            self._tables.notifications.count_end(SUBSCRIPTION_REMOVED)
        self._orphans.clear()

    def _orphan_came(self, subscription_id: bytes) -> None:
        self._tables.notifications.received += 1
        self._tables.notifications.superseded += subscription_id in self._orphans
        self._orphans.add(subscription_id)

    def _token_fact(self, line: TokenRegisteredAt | CronSentAt) -> bool:
        token = self._tables.tokens.get(line.token_id)
        if token is None:
            return False
        if isinstance(line, CronSentAt):
            token.record = replace(token.record, cron_sent_at=line.at)
        else:
            token.record = replace(token.record, registered_at=line.at)
        return True

    def _add_token(self, record: TokenRecord) -> bool:
        tokens = self._tables.tokens
        if tokens.add(record) is not None:
            return True
        rival = tokens.registration(record.device_token, record.verify_key)
        if rival is None or tokens.get(record.token_id) is not None:
            return False
        better = _BEST_FIRST.index(record.status.state) < _BEST_FIRST.index(rival.record.status.state)
        if better and not rival.rows:
            self._tables.remove_token(rival)
            tokens.add(record)
        return False


@dataclass(slots=True)
class NtfStartReport:
    """The contents of the folder, in numbers."""

    tokens: int = 0
    subscriptions: int = 0
    notifications: int = 0
    pending: int = 0
    """Notifications that are still to be pushed."""
    skipped: int = 0
    """Records about tokens or subscriptions that do not exist, or that exist already."""
    broken: int = 0
    """Lines that could not be read, and were skipped as requested."""
    torn_bytes: int = 0
    """Bytes of torn lines, cut off the ends of logs: a crash interrupted their writing."""


class NtfLogReader:
    """Reads logs into one store."""

    def __init__(
        self, tables: NtfTables, report: NtfStartReport, *, skip_broken: bool, keep_broken: bool = True
    ) -> None:
        self._tables: Final = tables
        self._report: Final = report
        self._restorer: Final = NtfRestorer(tables)
        self._skip: Final = skip_broken
        self._keep: Final = keep_broken

    def read_store_log(self, path: Path, upto: int | None = None) -> bool:
        """Read the store log, or its first `upto` bytes.

        Returns whether it is compact: tokens, then subscriptions, then services, each once.
        """
        broken, skipped = self._report.broken, self._report.skipped
        stage = 0
        order = (TokenAdded, SubscriptionAdded, ServiceSet)
        for change in self._records(path, decode_ntf_store_line, upto):
            self._report.skipped += not self._restorer.store_change(change)
            stage = order.index(type(change)) if type(change) in order[stage:] else len(order)
        return stage < len(order) and (self._report.broken, self._report.skipped) == (broken, skipped)

    def read_notifications(self, folder: Path) -> tuple[int, bool]:
        """Read state and changes. Returns the number of the next changes log, and whether the state is up to date."""
        begins: int | None = None
        broken = self._report.broken
        for line in self._records(folder / STATE, decode_state_line):
            if isinstance(line, StateBegins):
                begins = line.next_part
            elif begins is None:
                raise BadLogLine("not the beginning of a state file", file=str(folder / STATE), line=1)
            self._report.skipped += not self._restorer.state(line)
        if begins is None:
            self._read_last_notifications(folder / LAST_NOTIFICATIONS)
        changes, next_part = 0, begins or 1
        for number, part in change_logs(folder).items():
            if number >= next_part:
                changes += self._read_changes(part)
                next_part = number + 1
        self._restorer.finish()
        is_current = begins is not None and changes == 0 and self._report.broken == broken
        return next_part, is_current

    def count(self) -> None:
        """Complete the report."""
        tables, report = self._tables, self._report
        report.tokens = len(tables.tokens)
        report.subscriptions = len(tables.routers.table)
        report.notifications = tables.notifications.count
        report.pending = tables.notifications.accounting().pending

    def _records(self, path: Path, decode: Callable[[bytes], T], upto: int | None = None) -> Iterator[T]:
        return records_of(
            path, decode, self._report, skip_broken=self._skip, keep_broken=self._keep, upto=upto
        )

    def _read_changes(self, path: Path) -> int:
        count = 0
        for line in self._records(path, decode_ntf_change_line):
            # A notification of a subscription that was removed later is normal.
            self._restorer.change(line)
            count += 1
        return count

    def _read_last_notifications(self, path: Path) -> None:
        for token_id, item in self._records(path, _decode_last_notification):
            self._report.skipped += not self._restorer.last_notification(token_id, item)


def _decode_last_notification(line: bytes) -> tuple[bytes, PushedNotification]:
    """v1 tknId item (ntf.md 2.8, 5.2)"""
    version, _, rest = line.partition(b" ")
    token_id, _, item = rest.partition(b" ")
    if version != b"v1":
        raise BadLogLine("not a last notification of version 1")
    try:
        return decode_field(token_id), PushedNotification.parse(item.decode())
    except (DecodeError, UnicodeDecodeError):
        raise BadLogLine("not a last notification") from None


STORE_LOG: Final = "ntf-server-store.log"
LAST_NOTIFICATIONS: Final = "ntf-server-last-notifications.log"
STATE: Final = "ntf-server-state.log"
CHANGE_LOG: Final = "ntf-server-changes.log"
DIRECT_KEYS: Final = "ntf-server-direct.keys"
SERVICE_KEYS: Final = "ntf-server-services.keys"
LOCK: Final = "ntf-server.lock"


def change_log(folder: Path, number: int) -> Path:
    return folder / f"{CHANGE_LOG}.{number}"


def change_logs(folder: Path) -> dict[int, Path]:
    """Return the changes logs by number, oldest first."""
    parts = [part for part in folder.glob(f"{CHANGE_LOG}.*") if part.suffix[1:].isdigit()]
    return {number: change_log(folder, number) for number in sorted(int(part.suffix[1:]) for part in parts)}
