"""A disk that fails: every call that changes a folder is counted, and any of them can be made to fail, for a while.

Calls are those of `os`, and writes of files that `os.fdopen` opened. A write that fails leaves half of it behind.
"""

from __future__ import annotations

import errno
import io
import os
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import pytest

_BY_DESCRIPTOR: Final = ("write", "fdatasync", "fsync", "ftruncate", "fchmod")
_BY_PATH: Final = ("open", "replace", "rename", "unlink", "link", "mkdir")


def without_syncs(patch: pytest.MonkeyPatch) -> None:
    """Sync nothing, which takes most of the time, and which only a power cut would show."""
    for name in ("fsync", "fdatasync"):
        patch.setattr(os, name, lambda _descriptor: None)


class FailingDisk:
    """Patches `os` for one folder. Nothing fails until the test says so."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder: Final = os.fspath(folder)
        self._real: Final[dict[str, Callable[..., Any]]] = {}
        self._first = self._last = 0
        self._kinds: Collection[str] = ()
        self._error = errno.ENOSPC
        self.calls = 0
        """Calls so far, failed ones included."""
        self.failed: Final[Counter[str]] = Counter()
        self.when_failing: Callable[[], None] | None = None
        """Called before the first call that fails."""
        for name in _BY_DESCRIPTOR:
            self._wrap(patch, name, self._by_descriptor(name))
        for name in _BY_PATH:
            self._wrap(patch, name, self._by_path(name))
        self._wrap(patch, "fdopen", self._fdopen)

    def fail(self, first: int, count: int = 1, error: int = errno.ENOSPC) -> None:
        """Let so many calls fail, beginning with this one from now on (1 is the next)."""
        self._first, self._last, self._error = self.calls + first, self.calls + first + count - 1, error

    def fill(self, kinds: Collection[str] = ("write", "open"), error: int = errno.ENOSPC) -> None:
        """Let every call of these kinds fail until `heal`."""
        self._kinds, self._error = kinds, error

    def heal(self) -> None:
        self._first = self._last = 0
        self._kinds = ()

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, wrapped: Callable[..., Any]) -> None:
        self._real[name] = getattr(os, name)
        patch.setattr(os, name, wrapped)

    def _fails(self, kind: str) -> bool:
        self.calls += 1
        fails = self._first <= self.calls <= self._last or kind in self._kinds
        if fails:
            if not self.failed and self.when_failing is not None:
                self.when_failing()
            self.failed[kind] += 1
        return fails

    def _raise(self) -> None:
        raise OSError(self._error, os.strerror(self._error))

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | Path) and os.fspath(path).startswith(self._folder)

    def _by_descriptor(self, name: str) -> Callable[..., Any]:
        def called(descriptor: int, *arguments: Any) -> Any:
            ours = self._is_ours(os.readlink(f"/proc/self/fd/{descriptor}"))
            if ours and self._fails(name):
                if name == "write":
                    self._real["write"](descriptor, bytes(arguments[0])[: len(arguments[0]) // 2])
                self._raise()
            return self._real[name](descriptor, *arguments)

        return called

    def _by_path(self, name: str) -> Callable[..., Any]:
        def called(path: Any, *arguments: Any, **named: Any) -> Any:
            if self._is_ours(path) and self._fails(name):
                self._raise()
            return self._real[name](path, *arguments, **named)

        return called

    def _fdopen(self, descriptor: int, mode: str = "r", buffering: int = -1, **named: Any) -> Any:
        if "w" not in mode or not self._is_ours(os.readlink(f"/proc/self/fd/{descriptor}")):
            return self._real["fdopen"](descriptor, mode, buffering, **named)
        return io.BufferedWriter(_Raw(self, descriptor), max(buffering, 1))


class _Raw(io.FileIO):
    def __init__(self, disk: FailingDisk, descriptor: int) -> None:
        super().__init__(descriptor, "w")
        self._disk = disk

    def write(self, data: Any, /) -> int:
        os.write(self.fileno(), b"")  # counts, and fails
        written = super().write(data)
        assert written is not None
        return written
