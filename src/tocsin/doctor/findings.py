"""Findings of the doctor: a subject, its status, a sentence, and the next step."""

from __future__ import annotations

import ctypes
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

_TIMEX_BYTES: Final = 512
"""Larger than the kernel's structure on any machine. Zeros make the call read-only."""
_UNSYNCHRONIZED: Final = 5
"""TIME_ERROR of adjtimex(2)."""


def clock_is_synchronized() -> bool | None:
    """The kernel's state as set by chrony, ntpd or systemd-timesyncd; None on systems that do not tell."""
    if sys.platform != "linux":
        return None
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONIZED


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    """It works now, but will stop working soon, or could work better."""
    BAD = "bad"
    SKIPPED = "skipped"
    """It was not examined; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    status: Status
    text: str
    """A sentence without secrets or ids."""
    next_step: str = ""
    part: str = ""
    """The part of the installation: a router, the pipeline, the machine."""


def ok(subject: str, text: str) -> Finding:
    return Finding(subject, Status.OK, text)


def warn(subject: str, text: str, next_step: str) -> Finding:
    return Finding(subject, Status.WARN, text, next_step)


def bad(subject: str, text: str, next_step: str) -> Finding:
    return Finding(subject, Status.BAD, text, next_step)


def skipped(subject: str, text: str, next_step: str = "") -> Finding:
    return Finding(subject, Status.SKIPPED, text, next_step)


def worst(findings: Iterable[Finding]) -> Status:
    found = {finding.status for finding in findings}
    return next((status for status in (Status.BAD, Status.WARN) if status in found), Status.OK)


class DiskSpace(NamedTuple):
    total: int
    free: int


def disk_space(path: Path) -> DiskSpace:
    """The space of the file system that holds the folder. Raises OSError."""
    usage = shutil.disk_usage(path)
    return DiskSpace(usage.total, usage.free)


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """How thorough an examination is, and how it looks at the machine; tests replace the latter."""

    now: Callable[[], float] = time.time
    disk_space: Callable[[Path], DiskSpace] = disk_space
    clock_is_synchronized: Callable[[], bool | None] = clock_is_synchronized
    timeout: float = 10.0
    """Seconds for each connection."""
    most_routers: int = 10
    """How many SMP routers to connect to."""
    online: bool = False
    """Whether to send a test push to push providers."""


def span(seconds: float) -> str:
    """A duration for people: `3 days`."""
    seconds = abs(seconds)
    for unit, name in ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= unit:
            count = int(seconds / unit)
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return f"{int(seconds)} s"
