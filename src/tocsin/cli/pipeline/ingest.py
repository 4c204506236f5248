"""`tocsin pipeline ingest`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import (
    add_event_logs,
    add_job_options,
    add_smallest_group,
    ahead_of,
    job_options,
)
from tocsin.errors import ConfigError

NAME = "ingest"
SUMMARY = "read the routers' event logs into the table events"
DESCRIPTION = (
    "Follows the event logs of any number of routers and adds every segment to the table `events`, exactly once. Lines "
    "that are not valid events are listed in the table `quarantine`. Continues where it stopped, also after a kill."
)
EXAMPLE = "tocsin pipeline ingest --events smp-events --events ntf-events --build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_event_logs(parser)
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="read the existing segments, then end (default: run until stopped)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=5,
        metavar="SECONDS",
        help="how often to look for new segments; a few events wait up to six times as long (default: %(default)s)",
    )
    parser.add_argument(
        "--build", action="store_true", help="also bring all other tables up to date, at intervals"
    )
    parser.add_argument(
        "--build-every",
        type=float,
        default=300,
        metavar="SECONDS",
        help="with --build: how often to do so, if there are new events (default: %(default)s)",
    )
    add_smallest_group(parser)
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    if not options.interval > 0:
        raise ConfigError(f"--interval {options.interval}: must be more than 0 seconds")
    if not options.build_every > 0:
        raise ConfigError(f"--build-every {options.build_every}: must be more than 0 seconds")
    ahead = ahead_of(options)
    from tocsin.pipeline.jobs.ingest import BuildPlan, run_ingest

    return run_ingest(
        job,
        options.events,
        interval=None if options.available_now else options.interval,
        build=BuildPlan(options.build_every, options.smallest_group) if options.build else None,
        ahead=ahead,
    )
