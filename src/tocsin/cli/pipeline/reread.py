"""`tocsin pipeline reread`."""

from __future__ import annotations

import argparse

from tocsin.cli.pipeline.job_options import (
    add_event_logs,
    add_job_options,
    add_smallest_group,
    ahead_of,
    job_options,
)

NAME = "reread"
SUMMARY = "read quarantined lines again after an upgrade"
DESCRIPTION = (
    "Reads the lines that the table `quarantine` lists again from the routers' segments. Lines that are valid events "
    "now move to the table `events`, and all tables are brought up to date. Says which segments are gone."
)
EXAMPLE = "tocsin pipeline reread --events smp-events --events ntf-events"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_event_logs(parser)
    add_smallest_group(parser)
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    ahead = ahead_of(options)
    from tocsin.pipeline.jobs.repairs import run_reread

    return run_reread(job, options.events, ahead=ahead, smallest_group=options.smallest_group)
