"""Clocks of a process that a test moves: the wall clock, and the one that goes on while a machine sleeps.

The test writes to a small file how far each is ahead, and the process, which maps it, reads that with each question.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final

VARIABLE: Final = "TOCSIN_TEST_CLOCKS"
_AHEAD: Final = struct.Struct("dd")
_WALL = time.time
_OF_SYSTEM = time.clock_gettime


def monotonic() -> float:
    """Return the true time since the machine was started, which all processes share."""
    return _OF_SYSTEM(time.CLOCK_BOOTTIME)


class ClockFile:
    """Says how far the clocks of one process are ahead, in seconds."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.set()

    def set(self, *, wall: float = 0.0, boot: float = 0.0) -> None:
        if not self.path.exists():
            self.path.write_bytes(bytes(_AHEAD.size))
        with self.path.open("r+b") as file:
            file.write(_AHEAD.pack(wall, boot))


def jump(path: Path) -> None:
    """Let the clocks of this process go by a file from now on."""
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def wall() -> float:
        seconds: float = _AHEAD.unpack(ahead)[0]
        return _WALL() + seconds

    def of_system(clock: int) -> float:
        seconds: float = _AHEAD.unpack(ahead)[1]
        return _OF_SYSTEM(clock) + (seconds if clock == time.CLOCK_BOOTTIME else 0.0)

    time.time = wall
    time.clock_gettime = of_system
