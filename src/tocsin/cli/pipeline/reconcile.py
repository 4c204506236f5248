"""`tocsin pipeline reconcile`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, group_size, job_options

NAME = "reconcile"
SUMMARY = "find queues about which the NTF router and SMP routers disagree"
DESCRIPTION = (
    "Compares the subscriptions of an NTF router with the notifiers of SMP routers, from exports of both. Writes the "
    "number of differing queues by SMP host to the table `drift`, and a plan that names them for `tocsin ntf repair`. "
    "Take the NTF export first. A second run on a day replaces the first. Exit code 1: the routers disagree."
)
EXAMPLE = (
    "tocsin pipeline reconcile --ntf subscriptions.parquet --smp notifiers-smp1.parquet "
    "--smp notifiers-smp2.parquet --plan repair.jsonl"
)

DEFAULT_PLAN: Final = Path("tocsin-repair.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ntf",
        type=Path,
        required=True,
        metavar="FILE",
        help="export of tocsin ntf store export-subscriptions",
    )
    parser.add_argument(
        "--smp",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="export of tocsin smp store export-notifiers; repeat it for each SMP router",
    )
    parser.add_argument(
        "--plan",
        type=Path,
        default=DEFAULT_PLAN,
        metavar="FILE",
        help="the repair plan; it names queues, so only its owner may read it (default: %(default)s)",
    )
    parser.add_argument(
        "--smallest-group",
        type=group_size,
        metavar="QUEUES",
        help="count SMP hosts with fewer subscriptions together (default: as the other tables have it, at first 10)",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    """1 if the routers disagree."""
    job = job_options(options)
    from tocsin.pipeline.jobs.reconcile import ReconcileOptions, run_reconcile

    chosen = ReconcileOptions(options.ntf, options.smp, options.plan, options.smallest_group)
    return run_reconcile(job, chosen)
