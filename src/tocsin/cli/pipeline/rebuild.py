"""`tocsin pipeline rebuild`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import add_job_options, add_smallest_group, day, job_options

NAME = "rebuild"
SUMMARY = "recompute days from their events"
DESCRIPTION = (
    "Recomputes the rows of notifications and all counts from a given day on, for example after an upgrade that "
    "counts differently. Days whose events have expired keep their counts."
)
EXAMPLE = "tocsin pipeline rebuild --from 2026-11-09"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="first", type=day, required=True, metavar="DAY", help="first day, UTC, e.g. 2026-11-09"
    )
    add_smallest_group(parser)
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.repairs import run_rebuild

    return run_rebuild(job, options.first, smallest_group=options.smallest_group)
