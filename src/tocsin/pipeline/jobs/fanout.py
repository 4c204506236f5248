"""`fanout` from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console

from tocsin.pipeline.fanout.campaign_push import PartPusher, PushedToken, SharePlanner, plan_parts, push_parts
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import spark_session

MOST_READERS: Final = 16
"""Each has a connection to the database of a router that is busy."""


def fan_out(
    job: JobOptions,
    campaign: str,
    planner: SharePlanner | None,
    planned: Callable[[Mapping[str, int] | None], Sequence[str]],
    pusher: PartPusher,
    record: Callable[[str, Sequence[PushedToken]], None],
) -> int:
    """The exit code. `planner`: None if the campaign is written down. `planned` is told of it and returns its parts."""
    summary, console, done = Summary("fanout"), Console(stderr=True), 0

    with spark_session(job.spark("fanout")) as spark, step(spark, campaign) as shown:
        counted = None
        if planner is not None:
            shown("reading tokens")
            readers = min(spark.sparkContext.defaultParallelism, MOST_READERS)
            counted = plan_parts(spark, planner, shards=readers)
        parts = planned(counted)

        def told(part: str, outcomes: Sequence[PushedToken]) -> None:
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
