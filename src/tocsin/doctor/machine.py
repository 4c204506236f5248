"""Examines the machine: its clock and the free space on its disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tocsin.doctor.findings import DoctorSettings, Finding, bad, ok, skipped, span, warn
from tocsin.doctor.freshness import written_at

MEBIBYTE: Final = 1 << 20
LEAST_FREE: Final = 256 * MEBIBYTE
LEAST_SHARE: Final = 0.01
LOW_FREE: Final = 2048 * MEBIBYTE
LOW_SHARE: Final = 0.05
FUTURE_SECONDS: Final = 120.0
"""How far in the future a file's time may be: file servers have their own clocks."""

_CLOCK_STEP: Final = "install chrony or systemd-timesyncd, and check with `timedatectl`"


def clock_findings(doctor: DoctorSettings, files: Iterable[Path]) -> Iterator[Finding]:
    """`files` were written by routers of this machine, so none can be from the future."""
    newest = max((written_at(path) for path in files), default=0.0)
    ahead = newest - doctor.now()
    if ahead > FUTURE_SECONDS:
        yield bad(
            "clock",
            f"a router's file has a time {span(ahead)} in the future: the clock was wrong then, or is wrong now",
            f"{_CLOCK_STEP}; Apple refuses pushes when the clock is off by an hour",
        )
        return
    match doctor.clock_is_synchronized():
        case True:
            yield ok("clock", "the system reports that its clock is synchronized")
        case False:
            yield warn(
                "clock",
                "the system reports that nothing synchronizes its clock (in a container, the host may do it)",
                _CLOCK_STEP,
            )
        case None:
            yield skipped("clock", "this system does not report whether its clock is synchronized")


def disk_findings(doctor: DoctorSettings, folders: Mapping[str, Path | None]) -> Iterator[Finding]:
    """`folders` by their contents; folders on one disk share one finding."""
    disks: dict[object, list[tuple[str, Path]]] = {}
    for what, folder in folders.items():
        if folder is not None:
            there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
            disks.setdefault(_device(there), []).append((what, there))
    for kept in disks.values():
        yield _disk_finding(doctor, f"disk of the {', '.join(what for what, _ in kept)}", kept[0][1])


def _device(path: Path) -> object:
    try:
        return path.stat().st_dev
    except OSError:
        return path


def _disk_finding(doctor: DoctorSettings, subject: str, folder: Path) -> Finding:
    try:
        space = doctor.disk_space(folder)
    except OSError as error:
        return bad(subject, f"{folder}: {error.strerror}", "check the folder, its owner and its permissions")
    share = space.free / max(1, space.total)
    text = f"{_bytes(space.free)} of {_bytes(space.total)} are free ({share:.0%})"
    if space.free < LEAST_FREE or share < LEAST_SHARE:
        step = "free some space now: a router that cannot write to disk stops answering"
        return bad(subject, f"the disk is full: {text}", step)
    if space.free < LOW_FREE or share < LOW_SHARE:
        return warn(subject, f"the disk is nearly full: {text}", "free some space, or move the folder")
    return ok(subject, text)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
