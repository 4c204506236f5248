"""`tocsin pipeline build`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import add_job_options, add_smallest_group, job_options

NAME = "build"
SUMMARY = "bring all tables up to date with the events"
DESCRIPTION = (
    "Computes from the table `events`: one row per notification, the hourly funnel with its accounting, outcomes, "
    "latencies, tokens by day and the health of SMP hosts. Reads only new events and the partitions they touch; a "
    "second run does nothing."
)
EXAMPLE = "tocsin pipeline build --lake /var/lib/tocsin/lake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_smallest_group(parser)
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.build import run_build

    return run_build(job, smallest_group=options.smallest_group)
