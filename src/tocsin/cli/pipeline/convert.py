"""`tocsin pipeline convert`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import add_job_options, job_options

NAME = "convert"
SUMMARY = "copy a lake from before Delta tables to a new place"
DESCRIPTION = (
    "Copies all tables of a lake that an earlier version wrote, and the list of segments that were read, and compares "
    "the number of rows of each table. The earlier lake stays as it is: delete it once you have checked the copy."
)
EXAMPLE = "tocsin pipeline convert --from tocsin-lake --lake tocsin-lake-2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="earlier",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the lake that an earlier version wrote",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.convert import run_convert

    return run_convert(job, options.earlier)
