"""A build from the command line: session, progress, summary, and the accounting at its end."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Shown, Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.update.build import build, expire, unbuilt

ACCOUNT = ("received", "accepted", "superseded", "failed", "shed", "pending", "difference")


def build_once(job: JobOptions, *, smallest_group: int) -> int:
    """The exit code: 1 if the accounting does not add up."""
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
            summary.add(**built_and_told(spark, lake, smallest_group, shown))
        account = accounting(spark, lake)
    summary.add(**account)
    summary.show(
        as_json=job.as_json, notes={"difference": "" if not account["difference"] else ACCOUNT_IS_OFF}
    )
    return 1 if account["difference"] else 0


ACCOUNT_IS_OFF = (
    "must be 0: look for hours with a difference in funnel_hourly, then `tocsin pipeline explain`"
)


def built_and_told(spark: SparkSession, lake: Lake, smallest_group: int, shown: Shown) -> dict[str, int]:
    """One build; its end, good or bad, is in the status file."""
    try:
        rows = build(spark, lake, smallest_group=smallest_group, step=shown)
        now = time.time()
        expire(lake, datetime.fromtimestamp(now, UTC).date(), now)
    except Exception as error:
        write_status(lake.folder, "build", "failed", error=str(error).splitlines()[0][:300])
        raise
    write_status(lake.folder, "build", "done", dict(rows))
    return rows


def accounting(spark: SparkSession, lake: Lake) -> dict[str, int]:
    """Over all hours there are."""
    totals = (
        lake.table(FUNNEL_TABLE)
        .read(spark)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in ACCOUNT))
        .head()
    )
    assert totals is not None
    return dict(zip(ACCOUNT, totals, strict=True))
