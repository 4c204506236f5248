"""What the journal of an SMP store writes, and into which of its two files; `group_commit` says when."""

from __future__ import annotations

from typing import Final

from tocsin.stores.memory.group_commit import GroupCommit
from tocsin.stores.memory.log_files import AppendOnlyFile
from tocsin.stores.memory.smp_message_log import (
    MessageAdded,
    MessageChange,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
    encode_change_line,
)
from tocsin.stores.memory.smp_store_log import StoreLogRecord

_MESSAGE_CHANGES: Final = (MessageAdded, MessageRemoved, NotificationAdded, NotificationRemoved)


class ChangeJournal(GroupCommit):
    """Implements `Journal` over the store log and the changes log.

    Without a changes log, changes of messages and notifications are forgotten.
    """

    def __init__(self, queue_log: AppendOnlyFile, change_log: AppendOnlyFile | None) -> None:
        super().__init__(queue_log, change_log, "smp-store")

    def append(self, change: StoreLogRecord | MessageChange) -> None:
        if isinstance(change, _MESSAGE_CHANGES):
            self.add_change_line(encode_change_line(change))
        else:
            self.add_store_line(change.encode())
