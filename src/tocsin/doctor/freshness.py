"""Examines event logs and pipeline tables: whether they are still being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.doctor.findings import DoctorSettings, Finding, bad, ok, skipped, span, warn
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED, SetsEventLog
from tocsin.events.private_files import SHARED, file_mode
from tocsin.events.pseudonyms import keys_folder
from tocsin.pipeline.lake.status_files import read_statuses

EVENT_LOG: Final = "event log"
TABLES: Final = "tables"
QUIET_SECONDS: Final = 86_400.0
"""After this time without events, the router is unused or its event log is broken."""
STUCK_SEGMENTS: Final = 10
"""An open segment is stuck when it is this many times older than the interval of publication."""
STUCK_SECONDS: Final = 60.0
OLD_TABLES_SECONDS: Final = 2 * 3600.0


def event_log_findings(settings: SetsEventLog, doctor: DoctorSettings) -> Iterator[Finding]:
    folder = settings.event_log
    if folder is None:
        yield skipped(
            EVENT_LOG,
            "it is off",
            "set event_log to a folder to be able to trace pushes",
        )
        return
    if not folder.is_dir():
        yield warn(
            EVENT_LOG, f"{folder} does not exist: the router has not written it yet", "start the router"
        )
        return
    keys = keys_folder(folder, settings.event_log_keys)
    if keys.is_dir():
        others, closed = (0o007, "o=") if file_mode(keys) == SHARED else (0o077, "700")
        if (mode := keys.stat().st_mode & 0o777) & others:
            text = f"other users can open the folder of pseudonym keys, {keys} ({mode:03o})"
            yield bad(EVENT_LOG, text, f"chmod {closed} {keys}")
    now = doctor.now()
    waiting = [now - written_at(path) for path in folder.glob(f"{OPEN_PREFIX}*")]
    allowed = max(STUCK_SECONDS, STUCK_SEGMENTS * settings.event_log_segment_seconds)
    if waiting and max(waiting) > allowed:
        yield bad(
            EVENT_LOG,
            f"events written {span(max(waiting))} ago are not published: the router was killed, or it hangs",
            "restart the router, which publishes them at its start",
        )
        return
    newest = newest_event(folder)
    if newest is None:
        yield ok(EVENT_LOG, "no events yet")
    elif now - newest > QUIET_SECONDS:
        step = "if there is traffic, search the router's log for `delivery events are lost`"
        yield warn(EVENT_LOG, f"the newest event was published {span(now - newest)} ago", step)
    else:
        yield ok(EVENT_LOG, f"the newest event was published {span(now - newest)} ago")


def newest_event(folder: Path) -> float | None:
    """When the last segment was published, seconds since 1970."""
    return max((written_at(path) for path in folder.glob(PUBLISHED)), default=None)


def pipeline_findings(lake: Path | None, doctor: DoctorSettings, event_logs: list[Path]) -> Iterator[Finding]:
    if lake is None or not lake.is_dir():
        step = "name its folder with --lake" if lake is None else "run `tocsin pipeline ingest` first"
        yield skipped(TABLES, "no pipeline was found" if lake is None else f"{lake} does not exist", step)
        return
    yield from _job_findings(lake, doctor)
    commits = {
        path.name: max((written_at(each) for each in (path / "_delta_log").glob("*.json")), default=0.0)
        for path in lake.iterdir()
        if (path / "_delta_log").is_dir()
    }
    if not commits:
        yield warn(TABLES, "they are empty", "run `tocsin pipeline ingest --build`")
        return
    events = max((newest for each in event_logs if (newest := newest_event(each)) is not None), default=0.0)
    age = doctor.now() - max(commits.values())
    behind = events - max(commits.values())
    if behind > OLD_TABLES_SECONDS:
        step = "run `tocsin pipeline ingest --follow --build`, or find out why it stopped"
        yield bad(TABLES, f"the events of the last {span(behind)} are missing", step)
    else:
        yield ok(TABLES, f"{len(commits)} tables, the newest was written {span(age)} ago")


def _job_findings(lake: Path, doctor: DoctorSettings) -> Iterator[Finding]:
    for status in read_statuses(lake).values():
        subject = f"job {status.job}"
        ago = span(doctor.now() - status.at)
        if status.state == "failed":
            why = status.error.splitlines()[0][:200] if status.error else "no reason was recorded"
            yield bad(subject, f"it failed {ago} ago: {why}", f"run `tocsin pipeline {status.job}` again")
        elif status.state == "running" and doctor.now() - status.at > OLD_TABLES_SECONDS:
            yield warn(
                subject,
                f"it reported {ago} ago that it is running, and nothing since",
                "check whether it is still running",
            )
        else:
            yield ok(subject, f"{'running' if status.state == 'running' else 'done'}, reported {ago} ago")


def written_at(path: Path) -> float:
    """Return 0 for a file that is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
