"""Reads the logs of an SMP router's folder into a store, without changing the logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tocsin.durable.log_files import records_of
from tocsin.smp_router.store.interface import SmpStoreReport
from tocsin.smp_router.store.logs.direct_log import DirectChange, decode_direct_line
from tocsin.smp_router.store.logs.message_log import (
    MessageChange,
    decode_change_line,
    decode_message_line,
    decode_notification_line,
)
from tocsin.smp_router.store.logs.store_log import (
    AddServiceLine,
    CreateQueueLine,
    StoreLogRecord,
    decode_store_log_line,
)
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=StoreLogRecord | MessageChange | DirectChange)
T = TypeVar("T")


@dataclass(slots=True)
class StartReport(SmpStoreReport):
    """The contents of the folder, in numbers."""

    broken: int = 0
    """Lines that could not be read, and were skipped as requested."""
    torn_bytes: int = 0
    """Bytes of torn lines, cut off the ends of logs: a crash interrupted their writing."""


class LogReader:
    """Reads logs into one store."""

    def __init__(
        self,
        store: SmpMemoryStore,
        report: StartReport,
        *,
        skip_broken_lines: bool = False,
        keep_broken_lines: bool = True,
    ) -> None:
        self._store: Final = store
        self._report: Final = report
        self._skip: Final = skip_broken_lines
        self._keep: Final = keep_broken_lines

    def read_store_log(self, path: Path, upto: int | None = None) -> bool:
        """Read the store log, or its first `upto` bytes.

        Returns whether it is compact: services first, then one CREATE for each queue.
        """
        broken = self._report.broken
        is_compact, queues_begun = True, False
        for record in self._records(path, decode_store_log_line, upto):
            restored = self._store.restore(record)
            self._report.skipped += not restored
            queues_begun |= isinstance(record, CreateQueueLine)
            is_compact &= restored and (
                isinstance(record, CreateQueueLine)
                or (isinstance(record, AddServiceLine) and not queues_begun)
            )
        return is_compact and self._report.broken == broken

    def read_messages(self, folder: Path) -> bool:
        """Read messages and notifications. Returns whether there were changes since the snapshots, or broken lines."""
        broken = self._report.broken
        self._restore(folder / MESSAGE_LOG, decode_message_line)
        self._restore(folder / NOTIFICATION_LOG, decode_notification_line)
        changes = sum(self._restore(part, decode_change_line) for part in change_logs(folder))
        return changes > 0 or self._report.broken > broken

    def read_notifications(self, folder: Path) -> None:
        """Read the notifications alone, as they are beside tables of the reference."""
        self._restore(folder / NOTIFICATION_LOG, decode_notification_line)

    def read_direct_log(self, folder: Path) -> bool:
        """Read the log of direct notifications. Returns whether all its lines are current."""
        broken, direct = self._report.broken, self._store.direct
        records = list(self._records(folder / DIRECT_LOG, decode_direct_line))
        restored = [direct.restore(record) for record in records]
        kept = len(direct.ntf_routers()) + len(direct.minimum_priorities()) + direct.packet_count()
        return all(restored) and len(records) == kept and self._report.broken == broken

    def count(self) -> None:
        """Complete the report."""
        store, report = self._store, self._report
        report.queues = store.queue_count()
        report.messages = sum(store.message_count(q) for q in store.queues_with_messages())
        report.notifications = sum(len(store.notifications(n)) for n in store.notifiers_with_notifications())

    def _restore(self, path: Path, decode: Callable[[bytes], R]) -> int:
        """Apply the lines of a log. Returns their number."""
        count = 0
        for record in self._records(path, decode):
            self._report.skipped += not self._store.restore(record)
            count += 1
        return count

    def _records(self, path: Path, decode: Callable[[bytes], R], upto: int | None = None) -> Iterator[R]:
        return records_of(
            path, decode, self._report, skip_broken=self._skip, keep_broken=self._keep, upto=upto
        )


STORE_LOG: Final = "smp-server-store.log"
MESSAGE_LOG: Final = "smp-server-messages.log"
NOTIFICATION_LOG: Final = "smp-server-ntfs.log"
CHANGE_LOG: Final = "smp-server-changes.log"
CHANGE_BASE: Final = "smp-server-changes.base"
DIRECT_LOG: Final = "smp-server-direct.log"
LOCK: Final = "smp-server.lock"

SNAPSHOTS: Final = (MESSAGE_LOG, NOTIFICATION_LOG)


def change_logs(folder: Path) -> list[Path]:
    """Return the changes logs, oldest first."""
    parts = [part for part in folder.glob(f"{CHANGE_LOG}.*") if part.suffix[1:].isdigit()]
    current = folder / CHANGE_LOG
    return [*sorted(parts, key=part_number), *([current] if current.exists() else [])]


def part_number(part: Path) -> int:
    return int(part.suffix[1:])
