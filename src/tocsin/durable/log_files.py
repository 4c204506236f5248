"""Files of lines that survive a power cut: appending, replacing, reading and compacting them.

A line that cannot be read stops the reading, unless the caller asked to skip such lines. Skipped lines are kept next to
the log, in a file that ends in `.broken`. A last line without its newline is the rest of a write that a crash
interrupted; readers ignore it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tocsin.durable.log_fields import BadLogLine
from tocsin.errors import StoreError, StoreUnavailable

_OWNER_ONLY: Final = 0o600
_CHUNK: Final = 1 << 20
_HOLDER_BYTES: Final = 64
LINES_AT_ONCE: Final = 256
PAUSE: Final = 0.001
"""Pause of a thread after this many lines, so that the event loop gets its turns."""


@contextmanager
def naming(path: Path, doing: str) -> Iterator[None]:
    """Translate errors of a file to a StoreUnavailable that names it."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"cannot {doing} {path}: {error.strerror or error}") from error


class AppendOnlyFile:
    """A log opened for appending. Each `append` is on disk when it returns, and may be repeated if it fails."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._descriptor = -1
        self._torn = False
        """Whether a failed `append` may have left something behind the last line."""
        try:
            with naming(path, "open"):
                self._descriptor = os.open(
                    path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY
                )
                os.fchmod(self._descriptor, _OWNER_ONLY)
                # A killed router may have left lines that were read, but are not on disk yet.
                os.fdatasync(self._descriptor)
                self.size = os.fstat(self._descriptor).st_size
        except StoreError:
            self.close()
            raise

    def append(self, lines: bytes) -> None:
        """Raises StoreUnavailable, after which the same lines may be appended again."""
        with naming(self.path, "write"):
            if self._torn:
                self._cut()
            self._torn = True
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fdatasync(self._descriptor)
        self._torn = False
        self.size += len(lines)

    def _cut(self) -> None:
        """Cut off what a failed attempt left.

        The lines are then written again as a whole, because after a failed sync the system may count pages as written
        that are not on disk.
        """
        if os.fstat(self._descriptor).st_size < self.size:
            raise StoreError(
                f"{self.path} has lost lines that were on disk: restore the folder from a backup"
            )
        os.ftruncate(self._descriptor, self.size)

    def reopen(self) -> None:
        """Go on with the file that has the name now, which is on disk. Raises StoreUnavailable, and changes nothing."""
        with naming(self.path, "open"):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            size = os.fstat(descriptor).st_size
        self.close()
        self._descriptor, self.size, self._torn = descriptor, size, False

    def close(self) -> None:
        """Never raises: what was appended is on disk."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)


def read_lines(path: Path, upto: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file without newlines, except an unfinished last line. A missing file has none.

    Reads only the first `upto` bytes, if given, and takes its time: they are the log of a running router.
    """
    with naming(path, "read"):
        try:
            file = path.open("rb", buffering=_CHUNK)
        except FileNotFoundError:
            return
        left = upto
        with file:
            for number, line in enumerate(file):
                if left is not None:
                    left -= len(line)
                    if left < 0:
                        return
                    if number % LINES_AT_ONCE == 0:
                        time.sleep(PAUSE)
                if line.endswith(b"\n"):
                    yield line[:-1].removesuffix(b"\r")


def cut_torn_line(path: Path) -> int:
    """Remove an unfinished last line, whose writing a crash interrupted. Returns the number of removed bytes."""
    with naming(path, "repair"):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            size = os.fstat(descriptor).st_size
            end = size
            while end > 0:
                start = max(0, end - _CHUNK)
                newline = os.pread(descriptor, end - start, start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            if end < size:
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
            return size - end
        finally:
            os.close(descriptor)


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a new file, which is on disk when this returns. Its name in the folder is not (`sync_folder`)."""
    with naming(path, "write"):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb", buffering=_CHUNK) as file:
            os.fchmod(descriptor, _OWNER_ONLY)
            for line in lines:
                file.write(line)
                file.write(b"\n")
            file.flush()
            os.fsync(descriptor)


def write_draft(path: Path, lines: Iterable[bytes]) -> Path:
    """Write the lines that are to replace those of `path` to a file next to it. Returns its name.

    A draft that fails is removed, because a full disk needs its space.
    """
    draft = path.with_name(path.name + ".new")
    try:
        write_lines(draft, lines)
    except BaseException:
        remove_draft(draft)
        raise
    return draft


def remove_draft(draft: Path) -> None:
    """Never raises."""
    with suppress(OSError):
        draft.unlink(missing_ok=True)


def replace_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the lines of a file. If the power fails, it keeps the old ones."""
    draft = write_draft(path, lines)
    try:
        rename(draft, path)
    except BaseException:
        remove_draft(draft)
        raise


def rename(old: Path, new: Path) -> None:
    """Rename a file. The new name is durable when this returns."""
    with naming(old, "rename"):
        os.replace(old, new)
    sync_folder(new.parent)


def remove(path: Path) -> None:
    """Remove a file if it exists. The removal is durable when this returns."""
    with naming(path, "remove"):
        path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    with naming(folder, "sync"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FolderLock:
    """A lock that one process holds at a time. The system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        with naming(path, "open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, _HOLDER_BYTES, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StoreError(
                f"another router uses {path.parent} ({path.name} is locked by {holder or 'another process'}): "
                "stop it first"
            ) from error
        with suppress(OSError):  # the lock holds without it
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"process %d\n" % os.getpid(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


@contextmanager
def locked_while_read(path: Path) -> Iterator[None]:
    """Hold the lock of a folder that has one. Raises StoreError if a router uses the folder."""
    lock = FolderLock(path) if path.exists() else None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def set_aside(path: Path, now: datetime) -> Path:
    """Return the name under which a file is kept that must not be read again."""
    return path.with_name(f"{path.name}.{now.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}")


def has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


logger = logging.getLogger(__name__)

T = TypeVar("T")


class CountsBroken(Protocol):
    broken: int
    """Lines that could not be read, and were skipped as requested."""


def records_of(
    path: Path,
    decode: Callable[[bytes], T],
    report: CountsBroken,
    *,
    skip_broken: bool,
    keep_broken: bool,
    upto: int | None = None,
) -> Iterator[T]:
    """Yield the decoded lines of one log, or of its first `upto` bytes."""
    broken: list[bytes] = []
    for number, line in enumerate(read_lines(path, upto), start=1):
        try:
            yield decode(line)
        except BadLogLine as error:
            if not skip_broken:
                raise BadLogLine(error.reason, file=str(path), line=number) from None
            logger.warning("%s, line %d: %s; SKIPPED as requested", path, number, error.reason)
            broken.append(line + b"\n")
    if broken:
        report.broken += len(broken)
        if keep_broken:
            keep_broken_lines(path, broken)


def keep_broken_lines(path: Path, lines: list[bytes]) -> None:
    """Keep broken lines, so that an operator can repair them."""
    file = AppendOnlyFile(path.with_name(path.name + ".broken"))
    try:
        file.append(b"".join(lines))
    finally:
        file.close()
    logger.warning("%d lines of %s that cannot be read are kept in %s", len(lines), path.name, file.path)


KEEP_ALL_BACKUPS: Final = timedelta(days=1)
KEEP_BACKUPS: Final = timedelta(days=21)
OLD_BACKUPS: Final = 3
"""The number of backups older than a day that are always kept."""


def start_of(path: Path) -> Path:
    """Return the name of a store log while it is compacted."""
    return path.with_name(path.name + ".start")


def current_store_log(path: Path) -> Path:
    """Return the file with the present lines: while `.start` exists, it is the log."""
    start = start_of(path)
    return start if start.exists() else path


def read_and_compact(
    path: Path, read: Callable[[Path], bool], compacted: Callable[[], Iterable[bytes]], now: datetime
) -> int:
    """Read a store log, and replace it by a compact one unless it is compact, in the steps of the reference.

    `read` returns whether the log is compact; `compacted` yields the lines of a compact log. Returns the number of
    bytes of a torn last line that were cut off (reference: `readWriteStoreLog`).
    """
    start = start_of(path)
    if start.exists():  # a crash while compacting, ours or the reference's: nothing was accepted after it
        if path.exists():
            rename(path, path.with_name(path.name + ".bak"))
        rename(start, path)
    torn_bytes = cut_torn_line(path)
    if not read(path):
        new = write_draft(path, compacted())
        rename(path, start)
        rename(new, path)
        rename(start, set_aside(path, now))
        _remove_old_backups(path, now)
    return torn_bytes


def _remove_old_backups(path: Path, now: datetime) -> None:
    """Keep the backups that the reference keeps: those of the last day, three older ones, and all of three weeks."""
    backups = []
    for backup in path.parent.glob(f"{path.name}.*Z"):
        with suppress(ValueError):
            backups.append((datetime.fromisoformat(backup.name.removeprefix(f"{path.name}.")), backup))
    older = sorted(one for one in backups if one[0] < now - KEEP_ALL_BACKUPS)
    for made_at, backup in older[:-OLD_BACKUPS]:
        if made_at < now - KEEP_BACKUPS:
            remove(backup)
