"""`tocsin pipeline build`: brings all tables up to date with `events`."""

from __future__ import annotations

from typing import Final

from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.spark.session import spark_session, where_it_runs
from tocsin.pipeline.spark.streams import StoppedError, stop_signals, stopping, unless_stopped
from tocsin.pipeline.update.build import accounting, build_and_expire, unbuilt
from tocsin.pipeline.update.retention import LATE

ACCOUNT_IS_OFF: Final = (
    "must be 0: look for hours with a difference in funnel_hourly, then run `tocsin pipeline explain`"
)

LATE_EVENTS: Final = "arrived after the rows of their day had expired: no table counts them"


def run_build(job: JobOptions, *, smallest_group: int | None) -> int:
    """Returns the exit code: 1 if the accounting does not add up, or a table could not be built.

    Raises ConfigError for a lake without events.
    """
    lake = job.open_lake()
    if not lake.table(EVENTS_TABLE).snapshot().number:
        raise ConfigError(
            f"no events in {job.lake} yet: run tocsin pipeline ingest first, or name the lake with --lake"
        )
    summary = Summary("build")
    if job.dry_run:
        summary.add(**unbuilt(lake))
        summary.show(as_json=job.as_json)
        return 0
    with spark_session(job.spark("build", many_rows=True, short=True)) as spark:
        summary.add(**where_it_runs(spark))
        with step(spark, "build") as shown, stop_signals() as stop:
            try:
                with stopping(spark, stop):
                    built = build_and_expire(spark, lake, smallest_group, unless_stopped(stop, shown))
                    account = accounting(spark, lake)
            except StoppedError as stopped:
                raise StoreError(f"build: {stopped}") from None
        summary.add(**built.figures)
    summary.add(**account)
    off = bool(account["difference"])
    if built.failures:
        summary.add(failed=built.reason)
    notes = {"difference": ACCOUNT_IS_OFF if off else "", LATE: LATE_EVENTS if built.late_events else ""}
    summary.show(as_json=job.as_json, notes=notes)
    return int(off or bool(built.failures))
