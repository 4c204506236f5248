"""`tocsin pipeline ingest`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.errors import ConfigError

NAME = "ingest"
SUMMARY = "read the routers' event logs into the table events"
DESCRIPTION = (
    "Follows the event logs of any number of routers and adds every segment to the table `events`, exactly once. Lines "
    "that are not valid events are listed in the table `quarantine`. Continues where it stopped, also after a kill."
)
EXAMPLE = "tocsin pipeline ingest --events smp-events --events ntf-events --build"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--events",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="a router's event_log folder; may be repeated",
    )
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="read the existing segments, then end (default: run until stopped)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how often to look for new segments (default: %(default)s)",
    )
    parser.add_argument(
        "--build", action="store_true", help="bring all other tables up to date after each batch"
    )
    parser.add_argument(
        "--smallest-group",
        type=int,
        default=10,
        metavar="TOKENS",
        help="with --build: count SMP hosts with fewer tokens together (default: %(default)s)",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    if not options.interval > 0:
        raise ConfigError(f"--interval {options.interval}: must be more than 0 seconds")
    from tocsin.pipeline.jobs.ingest import run_ingest

    return run_ingest(
        job,
        options.events,
        interval=None if options.available_now else options.interval,
        build_groups_of=options.smallest_group if options.build else None,
    )
