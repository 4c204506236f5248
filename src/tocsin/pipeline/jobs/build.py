"""`tocsin pipeline build`: brings all tables up to date with `events`."""

from __future__ import annotations

from typing import Final

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.update.build import accounting, build_and_expire, unbuilt

ACCOUNT_IS_OFF: Final = (
    "must be 0: look for hours with a difference in funnel_hourly, then run `tocsin pipeline explain`"
)


def run_build(job: JobOptions, *, smallest_group: int) -> int:
    """Returns the exit code: 1 if the accounting does not add up. Raises ConfigError for a lake without events."""
    lake = Lake(job.lake)
    if not lake.table(EVENTS_TABLE).snapshot().number:
        raise ConfigError(
            f"no events in {job.lake} yet: run tocsin pipeline ingest first, or name the lake with --lake"
        )
    summary = Summary("build")
    if job.dry_run:
        summary.add(**unbuilt(lake))
        summary.show(as_json=job.as_json)
        return 0
    with spark_session(job.spark("build", many_rows=True)) as spark:
        with step(spark, "build") as shown:
            summary.add(**build_and_expire(spark, lake, smallest_group, shown))
        account = accounting(spark, lake)
    summary.add(**account)
    off = bool(account["difference"])
    summary.show(as_json=job.as_json, notes={"difference": ACCOUNT_IS_OFF if off else ""})
    return int(off)
