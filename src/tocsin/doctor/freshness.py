"""Event logs and pipeline tables: do they go on?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.doctor.findings import Finding, Surroundings, bad, ok, skipped, span, warn
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED, SetsEventLog
from tocsin.events.pseudonyms import keys_folder
from tocsin.pipeline.lake.status_files import read_statuses

EVENT_LOG: Final = "event log"
TABLES: Final = "tables"
QUIET_SECONDS: Final = 86_400.0
"""Without an event a router seems to be unused, or its log broken."""
STUCK_SEGMENTS: Final = 10
"""An open segment that is so many times older than it should get is not published any more."""
STUCK_SECONDS: Final = 60.0
OLD_TABLES_SECONDS: Final = 2 * 3600.0


def event_log_findings(settings: SetsEventLog, around: Surroundings) -> Iterator[Finding]:
    folder = settings.event_log
    if folder is None:
        yield skipped(
            EVENT_LOG,
            "it is off",
            "set event_log to a folder: without it nobody can tell what became of pushes",
        )
        return
    if not folder.is_dir():
        yield warn(EVENT_LOG, f"{folder} is not there: the router has not written it yet", "start the router")
        return
    keys = keys_folder(folder, settings.event_log_keys)
    if keys.is_dir() and (mode := keys.stat().st_mode & 0o777) & 0o077:
        text = f"others may look into the folder of the keys of pseudonyms, {keys} ({mode:03o})"
        yield bad(EVENT_LOG, text, f"chmod 700 {keys}")
    now = around.now()
    waiting = [now - _changed(path) for path in folder.glob(f"{OPEN_PREFIX}*")]
    allowed = max(STUCK_SECONDS, STUCK_SEGMENTS * settings.event_log_segment_seconds)
    if waiting and max(waiting) > allowed:
        yield bad(
            EVENT_LOG,
            f"events written {span(max(waiting))} ago were not published: the router was killed, or it hangs",
            "restart the router: it publishes them at its start",
        )
        return
    newest = newest_event(folder)
    if newest is None:
        yield ok(EVENT_LOG, "no events yet")
    elif now - newest > QUIET_SECONDS:
        step = "if there is traffic, look at the router's log for `delivery events are lost`"
        yield warn(EVENT_LOG, f"the newest event was published {span(now - newest)} ago", step)
    else:
        yield ok(EVENT_LOG, f"the newest event was published {span(now - newest)} ago")


def newest_event(folder: Path) -> float | None:
    """When the last segment was published, seconds since 1970."""
    return max((_changed(path) for path in folder.glob(PUBLISHED)), default=None)


def pipeline_findings(lake: Path | None, around: Surroundings, event_logs: list[Path]) -> Iterator[Finding]:
    if lake is None or not lake.is_dir():
        step = "name its folder with --lake" if lake is None else "run `tocsin pipeline ingest` first"
        yield skipped(TABLES, "no pipeline was found" if lake is None else f"{lake} is not there", step)
        return
    yield from _job_findings(lake, around)
    commits = {
        path.name: max((_changed(each) for each in (path / "_commits").glob("*.json")), default=0.0)
        for path in lake.iterdir()
        if (path / "_commits").is_dir()
    }
    if not commits:
        yield warn(TABLES, "they are empty", "run `tocsin pipeline ingest --build`")
        return
    events = max((newest for each in event_logs if (newest := newest_event(each)) is not None), default=0.0)
    age = around.now() - max(commits.values())
    behind = events - max(commits.values())
    if behind > OLD_TABLES_SECONDS:
        step = "run `tocsin pipeline ingest --follow --build`, or look why it stopped"
        yield bad(TABLES, f"they lack the events of the last {span(behind)}", step)
    else:
        yield ok(TABLES, f"{len(commits)} tables, the newest was written {span(age)} ago")


def _job_findings(lake: Path, around: Surroundings) -> Iterator[Finding]:
    for status in read_statuses(lake).values():
        subject = f"job {status.job}"
        ago = span(around.now() - status.at)
        if status.state == "failed":
            why = status.error.splitlines()[0][:200] if status.error else "no reason was told"
            yield bad(subject, f"it failed {ago} ago: {why}", f"run `tocsin pipeline {status.job}` again")
        elif status.state == "running" and around.now() - status.at > OLD_TABLES_SECONDS:
            yield warn(
                subject, f"it said {ago} ago that it runs, and nothing since", "look whether it still runs"
            )
        else:
            yield ok(subject, f"{'it runs' if status.state == 'running' else 'it was done'}, said {ago} ago")


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
