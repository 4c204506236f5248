"""A log of all changes of queues and services beside the database, as `db_store_log` of the reference.

It has the lines of the store log, and is never read or compacted here. A change is written to it after its transaction
and before its answer. A kill between the two leaves the line out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tocsin.durable.log_files import AppendOnlyFile, cut_torn_line
from tocsin.smp_router.store.logs.store_log import StoreLogRecord


class StoreLogMirror:
    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Blocks. Raises StoreError."""
        cut_torn_line(path)
        self._file: Final = AppendOnlyFile(path)
        self._lines: list[bytes] = []

    def take(self, change: object) -> None:
        """Add the line of a change. Those of messages and notifications, and removed services, have none."""
        if isinstance(change, StoreLogRecord):
            self._lines.append(change.encode() + b"\n")

    def take_lines(self) -> bytes:
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def write(self, lines: bytes) -> None:
        """Blocks. Raises StoreUnavailable, after which the same lines may be written again."""
        self._file.append(lines)

    def close(self) -> None:
        self._file.close()
