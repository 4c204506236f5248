"""Progress of each job, in files that `tocsin doctor`, the page and operators read without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

DEFAULT_LAKE: Final = Path("tocsin-lake")
STATUS: Final = "_status"
"""The folder beside the tables."""

JobState = Literal["running", "done", "failed"]


class JobStatus(msgspec.Struct, frozen=True):
    job: str
    state: JobState
    at: float
    """Seconds since 1970."""
    figures: dict[str, int | float | str] = {}
    error: str = ""


def write_status(
    lake: Path,
    job: str,
    state: JobState,
    figures: dict[str, int | float | str] | None = None,
    error: str = "",
) -> None:
    """Replaces the job's previous status."""
    folder = lake / STATUS
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{job}-{os.getpid()}"
    draft.write_bytes(msgspec.json.encode(JobStatus(job, state, time.time(), figures or {}, error)))
    draft.replace(folder / f"{job}.json")


def read_statuses(lake: Path) -> dict[str, JobStatus]:
    """The last status of every job that ever ran, without files that cannot be read."""
    found = {}
    for path in sorted((lake / STATUS).glob("*.json")):
        try:
            status = msgspec.json.decode(path.read_bytes(), type=JobStatus)
        except (OSError, msgspec.MsgspecError):
            continue
        found[status.job] = status
    return found


def first_line(error: Exception) -> str:
    """The part of an error that fits into a status file and a summary."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
