"""`tocsin pipeline forget`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import add_job_options, day, job_options

NAME = "forget"
SUMMARY = "remove all rows with the pseudonyms of one day"
DESCRIPTION = (
    "Removes every event and notification with the pseudonyms of a day's key, for example after that key leaked. "
    "Counts of the day stay: they contain no pseudonyms."
)
EXAMPLE = "tocsin pipeline forget --day 2026-11-09"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--day", type=day, required=True, metavar="DAY", help="the day of the key, UTC, e.g. 2026-11-09"
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.repairs import run_forget

    return run_forget(job, options.day)
