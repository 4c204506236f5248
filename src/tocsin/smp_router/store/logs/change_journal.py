"""The journal of an SMP store: which of its three files each change goes to. `group_commit` writes them.

The log of direct notifications is written first, so that a packet that ends an association is on disk before its queue
is removed. Its lines about queues that did not reach the disk are skipped when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tocsin.durable.group_commit import GroupCommit, PendingWrite
from tocsin.durable.log_files import AppendOnlyFile
from tocsin.smp_router.store.logs.direct_log import DIRECT_CHANGES, DirectChange, DirectLogFile
from tocsin.smp_router.store.logs.log_reading import DIRECT_LOG
from tocsin.smp_router.store.logs.message_log import (
    MessageAdded,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
    encode_change_line,
)
from tocsin.smp_router.store.memory.memory_store import ServiceRemoved, StoreChange

_MESSAGE_CHANGES: Final = (MessageAdded, MessageRemoved, NotificationAdded, NotificationRemoved)


class _DirectWrite(NamedTuple):
    file: DirectLogFile
    everything: Sequence[DirectChange] | None
    """Content that replaces the file before the lines are appended."""
    lines: list[bytes]

    def write(self) -> None:
        # A second attempt replaces the file again, so the lines are appended to the same content.
        if self.everything is not None:
            self.file.replace(record.encode() for record in self.everything)
        if self.lines:
            self.file.append(self.lines)


class ChangeJournal(GroupCommit):
    """Implements `Journal` over the store log, the changes log and the log of direct notifications.

    Without a changes log, changes of messages and notifications are forgotten.
    """

    def __init__(self, queue_log: AppendOnlyFile, change_log: AppendOnlyFile | None) -> None:
        """The log of direct notifications is in the folder of the store log."""
        super().__init__(queue_log, change_log, "smp-store")
        self._direct_log: Final = DirectLogFile(queue_log.path.with_name(DIRECT_LOG))
        self._direct_lines: list[bytes] = []
        self._everything_direct: Sequence[DirectChange] | None = None

    @property
    def direct_log_outgrown(self) -> bool:
        """Whether the file has enough outdated lines to be rewritten."""
        return self._direct_log.outgrown

    def append(self, change: StoreChange) -> None:
        if isinstance(change, DIRECT_CHANGES):
            self._add_direct_line(change.encode())
        elif isinstance(change, _MESSAGE_CHANGES):
            self.add_change_line(encode_change_line(change))
        elif not isinstance(change, ServiceRemoved):
            self.add_store_line(change.encode())

    def replace_direct_log(self, everything: Sequence[DirectChange]) -> None:
        """Rewrite the file with the next commit. These are all present records."""
        if self._failure is None:
            self._everything_direct, self._direct_lines = everything, []
            self._appended += 1

    def close(self) -> None:
        super().close()
        self._direct_log.close()

    def _add_direct_line(self, line: bytes) -> None:
        if self._failure is None:
            self._direct_lines.append(line)
            self._appended += 1

    def _take_writes(self) -> list[PendingWrite]:
        direct = _DirectWrite(self._direct_log, self._everything_direct, self._direct_lines)
        self._everything_direct, self._direct_lines = None, []
        return [direct, *super()._take_writes()]
