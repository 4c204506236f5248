"""`tocsin pipeline replay`: notifications without an end → a request that `tocsin ntf replay` answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame

from tocsin.errors import ConfigError
from tocsin.events.replay import Overdue, write_request
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.tables import NOTIFICATIONS_TABLE
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.transforms.notifications import newest_moment, overdue

MINUTE_US = 60_000_000


def run_replay(job: JobOptions, out: Path, *, minutes: float) -> int:
    """Returns the number of notifications found. Raises ConfigError for a lake without notifications."""
    if minutes < 0:
        raise ConfigError(f"--older-than {minutes}: must not be negative")
    summary, table = Summary("replay"), job.existing_lake().table(NOTIFICATIONS_TABLE)
    if not table.snapshot().files:
        raise ConfigError(f"no notifications in {job.lake} yet: run tocsin pipeline ingest and build first")
    with spark_session(job.spark("replay")) as spark, step(spark, "replay") as shown:
        notifications = table.read(spark)
        shown("finding the newest event")
        newest = newest_moment(notifications).head()
        as_of = (newest["as_of"] if newest else None) or 0
        shown("finding notifications without an end")
        with cached(overdue(notifications, received_before=as_of - int(minutes * MINUTE_US))) as found:
            count = found.count()
            hosts = found.select("smp_host").distinct().count()
            if not job.dry_run:
                write_request(out, as_of, count, _entries(found))
    summary.add(without_an_end=count, smp_hosts=hosts, **({} if job.dry_run else {"request": str(out)}))
    summary.show(as_json=job.as_json, notes={"request": f"tocsin ntf replay {out}" if count else ""})
    return count


def _entries(found: DataFrame) -> Iterator[Overdue]:
    for row in found.toLocalIterator():
        yield Overdue(**row.asDict())
