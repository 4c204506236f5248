"""Logs as segments of lines that appear whole, and survive the death of their writer.

Theory of operation. Lines go into an open segment whose name begins with a dot, so that readers do not see it. Each
append is one write into the system's cache: a process that is killed loses nothing. When it is published the segment is
renamed to a name that readers see; it never changes again. A segment that a killed process left open is cut at its last
whole line and published by the next start. Names rise with every segment, also if the clock is set back: readers may
remember how far they are by a name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

OPEN_PREFIX: Final = ".open-"
_NAME: Final = re.compile(r"(?:\.open|[a-z]+)-(\d+)-\d+-\d+\.jsonl")

logger = logging.getLogger(__name__)


class SegmentWriter:
    """Raises OSError when it cannot be opened. Belongs to one thread."""

    def __init__(self, folder: Path, prefix: str, now: Callable[[], float]) -> None:
        """`prefix` begins the names of published segments."""
        self._folder = folder
        self._prefix = prefix
        self._now = now
        self._descriptor: int | None = None
        self._path: Path | None = None
        self._number = 0
        self.size = 0
        """Bytes in the open segment."""
        self.began_at = 0.0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = [_NAME.fullmatch(each.name) for each in folder.iterdir()]
        self._last = max((int(name[1]) for name in names if name), default=0)
        for path in sorted(folder.glob(f"{OPEN_PREFIX}*")):
            self._publish_left_over(path)

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def append(self, data: bytes) -> None:
        """Whole lines. In the system's hands when this returns; raises OSError, and then nothing of it is there."""
        try:
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            self._cut_torn_line()
            raise
        self.size += len(data)

    def detach(self) -> Callable[..., None]:
        """Ends the open segment. Whoever calls what is returned publishes it, perhaps in another thread."""
        assert self._descriptor is not None
        assert self._path is not None
        descriptor, path, target = self._descriptor, self._path, self._published(self._path)
        self._descriptor = self._path = None

        def publish(*, synced: bool = True) -> None:
            _publish(descriptor, path, target, synced=synced)

        return publish

    def _open(self) -> None:
        self._number += 1
        self.began_at = self._now()
        self._last = max(self._last + 1, int(self.began_at * 1_000_000))
        path = self._folder / f"{OPEN_PREFIX}{self._last:020d}-{os.getpid()}-{self._number}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path, self.size = path, 0

    def _cut_torn_line(self) -> None:
        """What was written of lines that are lost must not spoil the next ones."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size)

    def _published(self, path: Path) -> Path:
        return path.with_name(f"{self._prefix}-{path.name.removeprefix(OPEN_PREFIX)}")

    def _publish_left_over(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR)
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if not whole:
            os.close(descriptor)
            path.unlink()
            return
        os.ftruncate(descriptor, whole)
        _publish(descriptor, path, self._published(path), synced=True)


def _publish(descriptor: int, path: Path, target: Path, *, synced: bool) -> None:
    try:
        if synced:
            os.fsync(descriptor)
        os.close(descriptor)
        path.rename(target)
    except OSError as error:
        logger.error("a segment of %s could not be published: %s", target.parent.name, error.strerror)


HANDED_OVER: Final = "pending"
"""Begins the names of segments with due pushes."""
SEGMENTS: Final = f"{HANDED_OVER}-*.jsonl"
OUTCOMES: Final = "outcomes"
"""Begins the names of segments with outcomes; also their folder's, inside the one with due pushes."""
