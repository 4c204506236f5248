"""Files that name queues or notifications: only their owner can read them, and readers never see half of one.

Some of them are JSON lines with a first line that states the version and the number of lines.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from tocsin.errors import ConfigError

PRIVATE: Final = 0o600
SHARED: Final = 0o640
"""Modes of files: for their owner, or also for a group."""


@contextmanager
def private_draft(path: Path) -> Iterator[Path]:
    """Open an empty file next to `path` that replaces it if the body succeeds. Raises ConfigError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            yield draft
            sync(draft)
            draft.replace(path)
            sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def write_private_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Raises ConfigError."""
    with private_draft(path) as draft, draft.open("wb", buffering=1 << 20) as file:
        for line in lines:
            file.write(line)
            file.write(b"\n")


def file_mode(folder: Path) -> int:
    """Return the mode of private files in a folder: their owner may read them, or also a group that the operator chose.

    A folder that hands its group on to its files (chmod g+rxs) says which group. Raises OSError.
    """
    mode = folder.stat().st_mode
    return SHARED if mode & stat.S_ISGID and mode & stat.S_IRGRP else PRIVATE


def make_private_once(path: Path, content: bytes) -> None:
    """Create the file, with the mode that its folder asks for, unless it exists.

    The first process creates it in one step, even if it crashes. Raises OSError.
    """
    if path.exists():
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # readable by its owner only
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), file_mode(path.parent))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def sync(path: Path) -> None:
    """Wait until the file or folder is on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FirstLine(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def entries(self) -> int: ...


F = TypeVar("F", bound=FirstLine)
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class CountedLines(Generic[F, E]):
    """One kind of files with counted lines."""

    first: type[F]
    entry: type[E]
    version: int
    """The supported version."""
    name: str
    """The name of the kind in messages, as in "a plan"."""
    maker: str
    """The command that writes them."""
    entries: str = "entries"
    """The name of the entries in messages."""
    if_cut: str = ""
    """A sentence to add if entries are missing."""

    def write(self, path: Path, first: F, entries: Iterable[E]) -> None:
        """Write the file.

        Raises ConfigError; raises ValueError, and writes nothing, if the number of entries is wrong.
        """
        write_private_lines(path, self._lines(first, entries))

    def _lines(self, first: F, entries: Iterable[E]) -> Iterator[bytes]:
        yield msgspec.json.encode(first)
        count = 0
        for entry in entries:
            yield msgspec.json.encode(entry)
            count += 1
        if count != first.entries:
            raise ValueError(f"{count} {self.entries} instead of {first.entries}")

    def read(self, path: Path) -> tuple[F, list[E]]:
        """Read the file. Raises ConfigError that names the broken line, or says that lines are missing."""
        try:
            beginning, *lines = path.read_bytes().splitlines() or [b""]
        except OSError as error:
            raise ConfigError(
                f"cannot read the {self.name} {path}: {error.strerror}; `{self.maker}` writes one"
            ) from error
        try:
            first = msgspec.json.decode(beginning, type=self.first)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is not a {self.name} of `{self.maker}`: {error}") from error
        if first.version != self.version:
            raise ConfigError(
                f"{path} is a {self.name} of version {first.version}; only {self.version} is supported"
            )
        entries = list(self._decoded(path, lines))
        if len(entries) != first.entries:
            raise ConfigError(
                f"{path} has {len(entries)} {self.entries} instead of {first.entries}: was it cut?{self.if_cut}"
            )
        return first, entries

    def _decoded(self, path: Path, lines: Iterable[bytes]) -> Iterator[E]:
        decoder = msgspec.json.Decoder(self.entry)
        for number, line in enumerate(lines, start=2):
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise ConfigError(
                    f"{path}, line {number} is not an entry of a {self.name}: {error}"
                ) from error
