"""Reading the files of an NTF router's folder into a store in memory, without changing any of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.durable.log_fields import BadLogLine, decode_field
from tocsin.durable.log_reading import records_of
from tocsin.errors import DecodeError
from tocsin.ntf_router.store.logs.change_log import StateBegins, decode_ntf_change_line, decode_state_line
from tocsin.ntf_router.store.logs.restore import NtfRestorer
from tocsin.ntf_router.store.logs.store_folder import LAST_NOTIFICATIONS, STATE, change_logs
from tocsin.ntf_router.store.logs.store_log import (
    ServiceSet,
    SubscriptionAdded,
    TokenAdded,
    decode_ntf_store_line,
)
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.protocol.ntf.pushes import PushedNotification

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class NtfStartReport:
    """What was found in the folder."""

    tokens: int = 0
    subscriptions: int = 0
    notifications: int = 0
    pending: int = 0
    """Of the notifications: those that are still to be pushed."""
    skipped: int = 0
    """Records about tokens or subscriptions that do not exist (any more), or that exist already."""
    broken: int = 0
    """Lines that could not be read, and were skipped as asked."""
    torn_bytes: int = 0
    """Cut off the ends of logs: lines whose writing a crash interrupted."""


class NtfLogReader:
    """Fills one store."""

    def __init__(
        self, tables: NtfTables, report: NtfStartReport, *, skip_broken: bool, keep_broken: bool = True
    ) -> None:
        self._tables: Final = tables
        self._report: Final = report
        self._restorer: Final = NtfRestorer(tables)
        self._skip: Final = skip_broken
        self._keep: Final = keep_broken

    def read_store_log(self, path: Path) -> bool:
        """Whether it is compact: tokens, then subscriptions, then services, each once."""
        broken, skipped = self._report.broken, self._report.skipped
        stage = 0
        order = (TokenAdded, SubscriptionAdded, ServiceSet)
        for change in records_of(
            path, decode_ntf_store_line, self._report, skip_broken=self._skip, keep_broken=self._keep
        ):
            self._report.skipped += not self._restorer.store_change(change)
            stage = order.index(type(change)) if type(change) in order[stage:] else len(order)
        return stage < len(order) and (self._report.broken, self._report.skipped) == (broken, skipped)

    def read_notifications(self, folder: Path) -> tuple[int, bool]:
        """The number of the next part of the changes log, and whether the state file is all there is to know."""
        begins: int | None = None
        broken = self._report.broken
        for line in records_of(
            folder / STATE, decode_state_line, self._report, skip_broken=self._skip, keep_broken=self._keep
        ):
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
        """Completes the report."""
        tables, report = self._tables, self._report
        report.tokens = len(tables.tokens)
        report.subscriptions = len(tables.routers.table)
        report.notifications = tables.notifications.count
        report.pending = tables.notifications.accounting().pending

    def _read_changes(self, path: Path) -> int:
        count = 0
        for line in records_of(
            path, decode_ntf_change_line, self._report, skip_broken=self._skip, keep_broken=self._keep
        ):
            # A notification of a subscription that was removed later is nothing unusual.
            self._restorer.change(line)
            count += 1
        return count

    def _read_last_notifications(self, path: Path) -> None:
        for token_id, item in records_of(
            path, _decode_last_notification, self._report, skip_broken=self._skip, keep_broken=self._keep
        ):
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
        raise BadLogLine("a last notification that is none") from None
