"""Names of the files in the folder of an SMP router's store; `store_files` describes each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
