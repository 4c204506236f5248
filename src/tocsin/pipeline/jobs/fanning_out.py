"""`fanout` from the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.console import Console

from tocsin.pipeline.jobs.fanout import PartPusher, Pushed, push_parts
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake import Lake
from tocsin.pipeline.session import spark_session


def fan_out(
    job: JobOptions,
    campaign: str,
    parts: Sequence[str],
    pusher: PartPusher,
    record: Callable[[str, Sequence[Pushed]], None],
) -> int:
    """The exit code."""
    summary, console, done = Summary("fanout"), Console(stderr=True), 0

    with spark_session(job.spark("fanout")) as spark, step(spark, campaign) as shown:

        def told(part: str, outcomes: Sequence[Pushed]) -> None:
            nonlocal done
            record(part, outcomes)
            done += 1
            shown(f"{done} of {len(parts)} parts")
            if not console.is_terminal:
                console.print(f"fanout: {done} of {len(parts)} parts")

        counts = push_parts(
            spark,
            Lake(job.lake),
            campaign,
            parts,
            pusher,
            shards=spark.sparkContext.defaultParallelism,
            today=datetime.now(UTC).date(),
            record=told,
        )
    summary.add(campaign=campaign, pushes=counts.total(), **dict(sorted(counts.items())))
    summary.show(as_json=job.as_json)
    return 0


def plan_told(job: JobOptions, campaign: str, counts: dict[str, int]) -> int:
    """A dry run: how many tokens of each provider would be pushed to."""
    summary = Summary("fanout")
    summary.add(campaign=campaign, tokens=sum(counts.values()), **dict(sorted(counts.items())))
    summary.show(as_json=job.as_json)
    return 0
