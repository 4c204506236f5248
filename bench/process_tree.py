"""CPU and memory of this process and its descendants, from /proc: Spark's Java is a child of ours."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
CPU_CLOCK: Final = 2
"""With the process's number, it makes the name of its clock, as Linux's `clock_getcpuclockid` does."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Spent:
    cpu: float = 0.0
    wall: float = 0.0
    memory: int = 0
    """Of the largest process, at the end."""


@contextmanager
def spent() -> Iterator[Spent]:
    """While the body runs."""
    figures = Spent()
    cpu, wall = cpu_seconds(), time.monotonic()
    try:
        yield figures
    finally:
        figures.cpu, figures.wall = cpu_seconds() - cpu, time.monotonic() - wall
        figures.memory = max(int(fields[21]) * PAGE for fields in _family())


def run_measured(command: Sequence[str]) -> Spent:
    """Runs a command to its end. Java is a child of the command that nobody waits for, so it is watched meanwhile.

    Raises AssertionError if it fails.
    """
    before, began, figures = cpu_seconds(), time.monotonic(), Spent()
    with TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as process:
        while process.poll() is None:
            time.sleep(0.1)
            figures.cpu = max(figures.cpu, cpu_seconds() - before)
            figures.memory = max(figures.memory, *(int(fields[21]) * PAGE for fields in _family()))
        errors.seek(0)
        assert process.returncode == 0, errors.read()[-3000:]
    figures.wall = time.monotonic() - began
    return figures


def cpu_of(process: int) -> float:
    """CPU seconds of one running process, without its children.

    Its own clock counts nanoseconds. `/proc` counts ticks of ten milliseconds, too coarse for a short measurement.
    """
    return time.clock_gettime(~process << 3 | CPU_CLOCK)


def children_of(process: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(path.parent.name))
    return sorted(found)


def cpu_seconds(process: int | None = None) -> float:
    """Of a process, by default this one, and its descendants. Also of children that have ended and were waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _family(process)) * TICK


def _family(process: int | None = None) -> list[list[str]]:
    """Fields of /proc/PID/stat after the name, state first."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it has ended
    found = {process or os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in found} - found:
        found |= more
    return [stats[pid] for pid in found if pid in stats]


def memory_of(process: int | str) -> int:
    """Bytes that a process holds, or this one if it is called `self`."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
