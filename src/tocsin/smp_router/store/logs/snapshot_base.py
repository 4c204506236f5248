"""On which snapshots the changes logs build: `smp-server-changes.base`.

Theory of operation. The changes logs make sense only after the snapshots they were begun on, or after those that were
made of them. The reference knows nothing of them: if it ran after a crash of ours, it has read the old snapshots,
delivered from them and written new ones, and our changes would bring back what was received meanwhile. So the digests
of the snapshots are kept beside the changes; while snapshots are being replaced, both the old and the new ones are
right. A file that is missing counts like an empty one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tocsin.durable.log_files import naming, read_lines, remove, replace_lines
from tocsin.smp_router.store.logs.store_folder import CHANGE_BASE, SNAPSHOTS


class SnapshotBase:
    def __init__(self, folder: Path) -> None:
        self._path: Final = folder / CHANGE_BASE
        self._digests: dict[str, str] = {name: _digest(folder / name) for name in SNAPSHOTS}

    def fits(self) -> bool:
        """Whether the snapshots that were found are among those that the changes build on. True if nothing is known."""
        known = set(read_lines(self._path))
        return not known or known.issuperset(_lines(self._digests))

    def announce(self, new: Mapping[str, Path]) -> None:
        """The snapshots are about to be replaced by these files; `settle` follows when they are."""
        digests = {name: _digest(path) for name, path in new.items()}
        replace_lines(self._path, [*_lines(self._digests), *_lines(digests)])
        self._digests = digests

    def settle(self) -> None:
        """Only the snapshots that are there now are right."""
        replace_lines(self._path, _lines(self._digests))

    def forget(self) -> None:
        """There are no changes logs any more."""
        remove(self._path)


def _digest(path: Path) -> str:
    with naming(path, "read"):
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return hashlib.sha256().hexdigest()


def _lines(digests: Mapping[str, str]) -> list[bytes]:
    return [f"{name} {digest}".encode() for name, digest in digests.items()]
