"""`tocsin pipeline tables`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import add_lake, require_spark, storage_options

NAME = "tables"
SUMMARY = "list the tables: rows, days, columns and their meanings"
DESCRIPTION = (
    "Lists all tables of a lake with their rows and days, or the columns of one with their meanings."
)
EXAMPLE = "tocsin pipeline tables funnel_hourly"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", metavar="TABLE", help="show the columns of this table")
    add_lake(parser)
    parser.add_argument("--json", action="store_true", help="print the catalog as JSON")


def run(options: argparse.Namespace) -> int:
    require_spark()
    from tocsin.pipeline.jobs.options import JobOptions
    from tocsin.pipeline.jobs.tables import run_tables

    job = JobOptions(options.lake, storage=storage_options(options), work=options.work)
    return run_tables(job.existing_lake(), options.table, as_json=options.json)
