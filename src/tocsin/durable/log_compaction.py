"""Makes a store log compact while it is in use, so that it does not grow for ever.

Theory of operation. A thread reads the log up to its present end, as a start does, and writes a compact draft.
Meanwhile changes are appended to the log as usual. Then the thread of the commits, between two batches, appends what
came since to the draft and lets it take the log's place, in the steps in which a start does this
(`log_files.read_and_compact`). While `.start` exists, it is the log, so a crash at any step loses nothing, and the
reference recovers from it too. No backup is kept, because a busy router would fill the disk with them.

A draft that cannot be written is given up: the log stays as it is. From the first rename on, a step that fails is
repeated until it succeeds, because nothing may be appended before it is known which file a start would read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from tocsin.durable.log_files import (
    LINES_AT_ONCE,
    PAUSE,
    AppendOnlyFile,
    naming,
    remove,
    remove_draft,
    start_of,
    sync_folder,
    write_draft,
)
from tocsin.errors import StoreUnavailable

LEAST_BYTES: Final = 16 << 20
"""The size below which a log is never made compact while it is in use."""
GROWTH: Final = 4
"""A log is made compact when it has this many times its compact size."""
_CHUNK: Final = 1 << 20

logger = logging.getLogger(__name__)


def unhurried(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines, and pause between them."""
    for number, line in enumerate(lines):
        if number % LINES_AT_ONCE == 0:
            time.sleep(PAUSE)
        yield line


class LogReplacement:
    """A compact draft that takes the place of a log. Implements `PendingWrite`."""

    def __init__(self, file: AppendOnlyFile, draft: Path, upto: int) -> None:
        """The draft has the content of the first `upto` bytes of the file."""
        self._file: Final = file
        self._draft: Final = draft
        self._upto: Final = upto
        self._steps: list[Callable[[], None]] = []
        self._given_up = False
        self.saved = 0
        """Bytes by which the log is shorter now."""

    def write(self) -> None:
        """Replace the log. Raises StoreUnavailable, after which it may be called again."""
        if self._given_up:
            return
        if not self._steps and not self._is_complete():
            return
        path, start = self._file.path, start_of(self._file.path)
        self._steps = self._steps or [
            lambda: self._rename(path, start),
            lambda: self._rename(self._draft, path),
            lambda: remove(start),
            self._file.reopen,
        ]
        before = self._file.size
        while self._steps:
            self._steps[0]()
            del self._steps[0]
        self.saved = before - self._file.size
        self._given_up = True  # it is done, and must not be done again

    def _is_complete(self) -> bool:
        """Append what came since to the draft. Returns False, and gives up, if that fails."""
        try:
            with naming(self._draft, "write"):
                self._append_rest()
        except StoreUnavailable as error:
            logger.error("the store log stays as it is: %s", error)
            remove_draft(self._draft)
            self._given_up = True
            return False
        return True

    def _append_rest(self) -> None:
        source = os.open(self._file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(self._draft, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                at = self._upto
                while rest := os.pread(source, min(_CHUNK, self._file.size - at), at):
                    at += len(rest)
                    left = memoryview(rest)
                    while left:
                        left = left[os.write(target, left) :]
                os.fsync(target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    @staticmethod
    def _rename(old: Path, new: Path) -> None:
        with naming(old, "rename"):
            if old.exists():  # a repeated step has only the sync left
                os.replace(old, new)
        sync_folder(new.parent)


def write_compact_draft(
    path: Path, read: Callable[[], object], compacted: Callable[[], Iterable[bytes]]
) -> Path:
    """Read a log with `read`, and write the lines of `compacted` to a draft. Takes its time: call it in a thread."""
    read()
    return write_draft(path, unhurried(compacted()))
