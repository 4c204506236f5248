"""Names of the files in the folder of an NTF router's store; `store_files` describes each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STORE_LOG: Final = "ntf-server-store.log"
LAST_NOTIFICATIONS: Final = "ntf-server-last-notifications.log"
STATE: Final = "ntf-server-state.log"
CHANGE_LOG: Final = "ntf-server-changes.log"
DIRECT_KEYS: Final = "ntf-server-direct.keys"
LOCK: Final = "ntf-server.lock"


def change_log(folder: Path, number: int) -> Path:
    return folder / f"{CHANGE_LOG}.{number}"


def change_logs(folder: Path) -> dict[int, Path]:
    """Return the changes logs by number, oldest first."""
    parts = [part for part in folder.glob(f"{CHANGE_LOG}.*") if part.suffix[1:].isdigit()]
    return {number: change_log(folder, number) for number in sorted(int(part.suffix[1:]) for part in parts)}
