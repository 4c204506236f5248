"""Files that name queues or notifications: only their owner can read them, and readers never see half of one.

Some of them are JSON lines with a first line that states the version and the number of lines.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tocsin.errors import ConfigError


@contextmanager
def private_draft(path: Path) -> Iterator[Path]:
    """An empty file beside `path` that takes its place if the body succeeds. Raises ConfigError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            yield draft
            _sync(draft)
            draft.replace(path)
            _sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error


def write_private_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Raises ConfigError."""
    with private_draft(path) as draft, draft.open("wb", buffering=1 << 20) as file:
        for line in lines:
            file.write(line)
            file.write(b"\n")


def make_private_once(path: Path, content: bytes) -> None:
    """Unless it is there: made by whichever process is first, and none sees half of it, not even after a crash.

    Raises OSError.
    """
    if path.exists():
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # for its owner only
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _sync(path: Path) -> None:
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
    """One kind of such files."""

    first: type[F]
    entry: type[E]
    version: int
    """The only one that is known."""
    name: str
    """As in "a plan"."""
    maker: str
    """The command that writes them."""
    entries: str = "entries"
    """What they are called in messages."""
    if_cut: str = ""
    """More to say in that case."""

    def write(self, path: Path, first: F, entries: Iterable[E]) -> None:
        """Raises ConfigError, and ValueError if there are not as many entries: then nothing is written."""
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
        """Raises ConfigError, saying which line is none or that some are missing."""
        try:
            beginning, *lines = path.read_bytes().splitlines() or [b""]
        except OSError as error:
            raise ConfigError(f"the {self.name} {path} cannot be read: {error.strerror}") from error
        try:
            first = msgspec.json.decode(beginning, type=self.first)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is no {self.name} of {self.maker}: {error}") from error
        if first.version != self.version:
            raise ConfigError(f"{path} is a {self.name} of version {first.version}; {self.version} is known")
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
                raise ConfigError(f"{path}, line {number} is no entry of a {self.name}: {error}") from error
