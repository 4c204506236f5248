"""`tocsin pipeline rebuild`, `forget` and `reread`: an operator's corrections of the tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.commits import READERS_HOURS
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.update.build import build_and_expire
from tocsin.pipeline.update.quarantine_rereading import reread_quarantine
from tocsin.pipeline.update.rebuild import count_period, forget, rebuild
from tocsin.pipeline.update.retention import rows_since
from tocsin.pipeline.update.segment_sources import SegmentSources


def run_rebuild(job: JobOptions, first: date, *, smallest_group: int | None) -> int:
    """Returns 1 if a table could not be built."""
    lake, summary = job.existing_lake(), Summary("rebuild")
    since = max(first, rows_since(lake))
    summary.add(rebuilt_from=since.isoformat())
    notes = (
        {"rebuilt_from": "rows of earlier days have expired; their counts stay as they are"}
        if since > first
        else {}
    )
    failures: dict[str, str] = {}
    if not job.dry_run:
        with (
            spark_session(job.spark("rebuild", many_rows=True, short=True)) as spark,
            step(spark, "rebuild") as shown,
        ):
            built = rebuild(spark, lake, first, smallest_group=smallest_group, step=shown)
        summary.add(**built.figures)
        failures = built.failures
        if failures:
            summary.add(failed=built.reason)
    summary.show(as_json=job.as_json, notes=notes)
    return 1 if failures else 0


def run_forget(job: JobOptions, day: date) -> int:
    """Raises ConfigError for a day that is not over: routers still write its pseudonyms."""
    if day >= datetime.now(UTC).date():
        raise ConfigError(
            f"{day} is not over: routers still write events with its pseudonyms. Try again tomorrow"
        )
    lake, summary = job.existing_lake(), Summary("forget")
    with spark_session(job.spark("forget", short=True)) as spark, step(spark, "forget"):
        found = count_period(spark, lake, day) if job.dry_run else forget(spark, lake, day)
    done = "to_remove" if job.dry_run else "removed"
    summary.add(period=day.isoformat(), **{f"{table}_{done}": rows for table, rows in found.items()})
    notes = {
        "period": "delete its key, and the routers' segments, yourself if they still exist; counts stay. A build "
        f"deletes the files with these rows after {READERS_HOURS} hours",
    }
    summary.show(as_json=job.as_json, notes=notes)
    return 0


def run_reread(job: JobOptions, sources: Sequence[str], *, ahead: int, smallest_group: int | None) -> int:
    """Moves quarantined lines that are valid events now, then builds. Returns 1 if a table could not be built."""
    SegmentSources(sources, job.place.options)  # a mistake is said before Spark starts
    lake, summary, reason = job.existing_lake(), Summary("reread"), ""
    with spark_session(job.spark("reread", short=True)) as spark, step(spark, "reread") as shown:
        shown("quarantined lines")
        now = int(time.time() * 1_000_000)
        found = reread_quarantine(spark, lake, sources, now=now, ahead=ahead, dry_run=job.dry_run)
        summary.add(events=found.events, still_refused=found.still_refused, gone=found.gone)
        if found.events and not job.dry_run:
            shown("build")
            built = build_and_expire(spark, lake, smallest_group, shown)
            summary.add(**built.figures)
            reason = built.reason
    if reason:
        summary.add(failed=reason)
    named = ", ".join(found.gone_segments[:5]) + (" …" if len(found.gone_segments) > 5 else "")
    summary.add(gone_segments=len(found.gone_segments))
    summary.show(as_json=job.as_json, notes={"gone_segments": named})
    return 1 if reason else 0
