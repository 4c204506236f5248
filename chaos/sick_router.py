"""A router process whose wall clock jumps and whose disk fails when somebody else says so.

`python chaos/sick_router.py CONTROL STORE EVENTS smp start …` runs `tocsin smp start …`. The file CONTROL is mapped
into the memory of this process and of the one that starts it, so an order takes effect at the next call, and a router
that is started again is as sick as before.

The file stands alone, and imports nothing of Tocsin before the clock is replaced: modules take `time.time` and
`datetime` with them when they are imported.
"""

from __future__ import annotations

import datetime
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_CLOCK: Final = struct.Struct("<d")
_ERRORS: Final = struct.Struct("<2i")
_SIZE: Final = _CLOCK.size + _ERRORS.size


class Sickness:
    """The orders to one router. Both processes have the same file."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        if not path.exists():
            path.write_bytes(bytes(_SIZE))
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._shared = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)

    @property
    def clock_offset(self) -> float:
        """Seconds by which the router's clock is ahead."""
        found: float = _CLOCK.unpack_from(self._shared)[0]
        return found

    @clock_offset.setter
    def clock_offset(self, seconds: float) -> None:
        _CLOCK.pack_into(self._shared, 0, seconds)

    @property
    def disk_errors(self) -> tuple[int, int]:
        """Error numbers of all writes to the store and to the event log; 0 means that they succeed."""
        store, events = _ERRORS.unpack_from(self._shared, _CLOCK.size)
        return store, events

    @disk_errors.setter
    def disk_errors(self, errors: tuple[int, int]) -> None:
        _ERRORS.pack_into(self._shared, _CLOCK.size, *errors)


def replace_clock(sickness: Sickness) -> None:
    """Replace `time.time` and `datetime.now`. The monotonic clock stays, as it does when a real wall clock jumps."""
    real_time, real_datetime = time.time, datetime.datetime

    def now() -> float:
        return real_time() + sickness.clock_offset

    class _AnyDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real_datetime)

    class JumpingDatetime(real_datetime, metaclass=_AnyDatetime):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return real_datetime.fromtimestamp(now(), tz)

    time.time = now
    datetime.datetime = JumpingDatetime  # type: ignore[misc]


class SickDisk:
    """Fails as a full disk does: nothing new is created, and a write leaves half of it behind."""

    def __init__(self, sickness: Sickness, store: str, events: str) -> None:
        self._sickness = sickness
        self._folders = (store.rstrip("/") + "/", events.rstrip("/") + "/")
        self._write: Callable[..., int] = os.write
        self._open: Callable[..., int] = os.open
        os.write = self.write
        os.open = self.open

    def write(self, descriptor: int, data: Any) -> int:
        errors = self._sickness.disk_errors
        if any(errors):
            error = self._error(os.readlink(f"/proc/self/fd/{descriptor}"), errors)
            if error:
                self._write(descriptor, bytes(data)[: len(data) // 2])
                raise OSError(error, os.strerror(error))
        return self._write(descriptor, data)

    def open(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        errors = self._sickness.disk_errors
        if any(errors) and flags & os.O_CREAT and isinstance(path, str | Path):
            error = self._error(os.fspath(path), errors)
            if error:
                raise OSError(error, os.strerror(error), os.fspath(path))
        return self._open(path, flags, *arguments, **named)

    def _error(self, path: str, errors: tuple[int, int]) -> int:
        for folder, error in zip(self._folders, errors, strict=True):
            if path.startswith(folder):
                return error
        return 0


def main(arguments: list[str]) -> int:
    control, store, events, *command = arguments
    sickness = Sickness(Path(control))
    replace_clock(sickness)
    SickDisk(sickness, store, events)
    from tocsin.cli.main import run

    return run(command)


if __name__ == "__main__":
    del sys.path[0]  # modules of this folder must not hide others
    sys.exit(main(sys.argv[1:]))
