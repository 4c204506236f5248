"""Private files of JSON lines, the first of which says a version and how many others there are: a cut is noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tocsin.errors import ConfigError
from tocsin.events.private_files import write_private_lines


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
