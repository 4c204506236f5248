"""A folder that router, driver and executors share. Rows are segments in it, outcomes are files in a folder inside.

Nothing is synced, because the router hands everything over again after a crash. A segment is deleted when its batch is
committed, except the newest one, which tells its router which names have been used.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tocsin.events.event_log import HANDED_OVER, OUTCOMES, SEGMENTS, SegmentWriter
from tocsin.ntf_router.delivery.channels.channel import Segment

logger = logging.getLogger(__name__)


class FolderChannel:
    """The router's end. Only opening it, `begin` and `publish` raise OSError."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        """Removes what is in the folder."""
        self._folder = folder
        self._outcomes = folder / OUTCOMES
        self._segments = SegmentWriter(folder, HANDED_OVER, now)
        self._outcomes.mkdir(mode=0o700, exist_ok=True)
        for path in (*folder.glob(SEGMENTS), *self._outcomes.iterdir()):
            path.unlink(missing_ok=True)

    def begin(self, line: bytes) -> None:
        for path in self._folder.glob(SEGMENTS):
            path.unlink(missing_ok=True)
        self.publish([line])

    def publish(self, lines: Sequence[bytes]) -> None:
        self._segments.append(b"".join(lines))
        self._segments.detach()(synced=False)

    def take(self) -> Iterator[bytes]:
        for path in sorted(self._outcomes.glob(f"{OUTCOMES}-*")):
            try:
                lines = path.read_bytes()
            except OSError as error:
                logger.error("could not read outcomes of the deliver job: %s", error.strerror)
                continue
            yield lines
            with suppress(OSError):
                path.unlink()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """There is nothing to do in the background."""
        yield


@dataclass(frozen=True, slots=True)
class RouterFolder:
    """The job's end."""

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def new(self, after: str) -> Sequence[Segment]:
        found = []
        for path in self._paths(after):
            size = 0
            with suppress(FileNotFoundError):  # its router has restarted
                size = path.stat().st_size
            found.append(Segment(path.name, size))
        return found

    def between(self, after: str, end: str) -> Sequence[Segment]:
        return [each for each in self.new(after) if each.name <= end]

    def read(self, after: str, end: str) -> Iterator[tuple[int, bytes]]:
        for path in self._paths(after):
            if path.name > end:
                break
            with suppress(FileNotFoundError):
                yield int(path.name.split("-", 2)[1]), path.read_bytes()

    def done(self, end: str) -> None:
        for path in self.folder.glob(SEGMENTS):
            if path.name < end:
                path.unlink(missing_ok=True)

    def publish(self, key: str, lines: bytes) -> None:
        outcomes = self.folder / OUTCOMES
        outcomes.mkdir(mode=0o700, exist_ok=True)
        replace_file(outcomes / f"{OUTCOMES}-{key}.jsonl", lines)

    def _paths(self, after: str) -> list[Path]:
        return sorted(path for path in self.folder.glob(SEGMENTS) if path.name > after)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that others see whole or not at all. It is not synced."""
    draft = path.with_name(f".draft-{path.name}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.rename(path)
