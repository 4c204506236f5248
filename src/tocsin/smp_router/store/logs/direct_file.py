"""The file of `smp_direct_log`: made when there is something to keep, and written anew when most of it is outdated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tocsin.durable.log_files import AppendOnlyFile, replace_lines, sync_folder

LEAST_BYTES: Final = 16 << 20
"""Below this size it is never too large."""


class DirectLogFile:
    """One file, written by one thread."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._file: AppendOnlyFile | None = None
        self._compact_bytes = 0

    @property
    def outgrown(self) -> bool:
        """It has more than twice the size it had when there was nothing outdated in it."""
        return self._file is not None and self._file.size > max(LEAST_BYTES, 2 * self._compact_bytes)

    def append(self, lines: list[bytes]) -> None:
        """On disk when it returns. Raises StoreError."""
        self._opened().append(b"\n".join([*lines, b""]))

    def replace(self, lines: Iterable[bytes]) -> None:
        """These lines, or, if the power fails, those it had before. Raises StoreError."""
        self.close()
        replace_lines(self._path, lines)
        self._compact_bytes = self._opened().size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> AppendOnlyFile:
        if self._file is None:
            is_new = not self._path.exists()
            self._file = AppendOnlyFile(self._path)
            if is_new:
                sync_folder(self._path.parent)
        return self._file
