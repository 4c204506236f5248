"""`tocsin pipeline reconcile`: exports of an NTF router and of SMP routers → the table `drift` and a repair plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tocsin.errors import ConfigError
from tocsin.events.repair_plans import write_plan
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.reconcile.drift_search import DriftFindings, entries, publish, reconcile
from tocsin.pipeline.reconcile.export_files import read_exports, reading
from tocsin.pipeline.spark.session import spark_session, where_it_runs
from tocsin.pipeline.update.hourly_tables import smallest_group_of


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    ntf: Path
    smp: Sequence[Path]
    plan: Path
    smallest_group: int | None = None
    """None: that of the other tables."""

    def __post_init__(self) -> None:
        if not self.smp:
            raise ConfigError("nothing to compare with: name exports of SMP routers with --smp")


def run_reconcile(job: JobOptions, options: ReconcileOptions) -> int:
    """Returns the exit code: 1 if the routers disagree. Raises ConfigError for exports that cannot be compared."""
    summary = Summary("reconcile")
    with spark_session(job.spark("reconcile", shuffle_partitions=8)) as spark:
        summary.add(**where_it_runs(spark))
        found = reconcile_with(spark, None if job.dry_run else job.open_lake(), options)
    _add_figures(summary, found)
    if not job.dry_run:
        summary.add(plan=str(options.plan))
    hint = f"tocsin ntf repair {options.plan} --dry-run" if found.counts and not job.dry_run else ""
    summary.show(as_json=job.as_json, notes={"plan": hint})
    return 1 if found.counts else 0


def reconcile_with(spark: SparkSession, lake: Lake | None, options: ReconcileOptions) -> DriftFindings:
    """Compares with a session that stays, and writes plan and table unless there is no lake."""
    now = datetime.now(UTC)
    with step(spark, "reconcile") as shown, reading("an export"):
        exports = read_exports(spark, options.ntf, options.smp)
        with reconcile(spark, exports, shown) as found:
            if lake is not None:
                shown("writing the plan")
                write_plan(options.plan, int(now.timestamp()), found.queues, entries(found))
                shown("writing the table drift")
                smallest = options.smallest_group or smallest_group_of(lake)
                publish(spark, lake, exports, found, now, smallest)
    return found


def _add_figures(summary: Summary, found: DriftFindings) -> None:
    summary.add(
        smp_routers=len(found.servers),
        smp_routers_without_export=found.not_compared,
        subscriptions=sum(each.subscribed for each in found.servers.values()),
        smp_routers_that_differ=len(found.differing),
        **found.by(1),
        **{f"to_{action}": queues for action, queues in found.by(2).items()},
    )
