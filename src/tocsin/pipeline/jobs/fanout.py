"""`tocsin pipeline fanout`: pushes a reminder or a notice to all tokens of a router that it is for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console

from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.pipeline.fanout.campaign import Campaign, CampaignStore, campaign_store
from tocsin.pipeline.fanout.campaign_push import plan_parts, push_parts
from tocsin.pipeline.fanout.campaign_pusher import FanoutPusher, PushedToken
from tocsin.pipeline.fanout.campaign_tokens import TokenSource
from tocsin.pipeline.fanout.options import FanoutOptions
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.spark.session import spark_session

MOST_READERS: Final = 16
"""Each opens a connection to the database of a busy router."""


def run_fanout(job: JobOptions, options: FanoutOptions, settings: NtfSettings) -> int:
    """Returns the exit code. Raises ConfigError for settings without PostgreSQL, or a campaign of another kind."""
    summary = Summary("fanout")
    source = options.source(settings, int(time.time()))
    with campaign_store(settings) as store:
        if job.dry_run:
            counts = asyncio.run(source.counts())
            summary.add(
                campaign=options.campaign, tokens=sum(counts.values()), **dict(sorted(counts.items()))
            )
        else:
            outcomes = _push(job, options, settings, source, store)
            summary.add(
                campaign=options.campaign, pushes=sum(outcomes.values()), **dict(sorted(outcomes.items()))
            )
    summary.show(as_json=job.as_json)
    return 0


def _push(
    job: JobOptions, options: FanoutOptions, settings: NtfSettings, source: TokenSource, store: CampaignStore
) -> dict[str, int]:
    keys = keys_folder(job.folder, None).resolve()
    campaign = Campaign(job.folder.resolve() / "_campaigns" / options.campaign, keys, options.kind)
    planner = campaign.begin(source)
    expires_at = options.expires_at(int(time.time()))
    pusher = FanoutPusher(campaign.folder.folder, keys, options, settings.apns, expires_at)
    console, done = Console(stderr=True), 0
    with spark_session(job.spark("fanout")) as spark, step(spark, options.campaign) as shown:
        cores = spark.sparkContext.defaultParallelism
        counted = None
        if planner is not None:
            shown("reading tokens")
            counted = plan_parts(spark, planner, shards=min(cores, MOST_READERS))
        parts = campaign.planned(counted)

        def record(part: str, outcomes: Sequence[PushedToken]) -> None:
            nonlocal done
            store.record(campaign.folder, part, outcomes, reminders=options.notice is None)
            done += 1
            shown(f"{done} of {len(parts)} parts")
            if not console.is_terminal:
                console.print(f"fanout: {done} of {len(parts)} parts")

        today, lake = datetime.now(UTC).date(), job.open_lake()
        return push_parts(
            spark, lake, options.campaign, parts, pusher, shards=cores, today=today, record=record
        )
