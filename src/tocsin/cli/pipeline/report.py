"""`tocsin pipeline report`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, add_out_option, day, job_options

NAME = "report"
SUMMARY = "write a delivery report: an HTML page and CSV files"
DESCRIPTION = (
    "Writes one self-contained HTML page (no network, no scripts) and CSV files: the accounting, the delivery funnel, "
    "latencies, hours and SMP hosts, tokens, reasons of failures, drift, quarantined lines, and changes since last "
    "week. Safe to run again: each file is replaced as a whole."
)
EXAMPLE = "tocsin pipeline report --from 2026-11-09 --to 2026-11-15 --out report --check"

DEFAULT_FOLDER: Final = Path("tocsin-report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser, spark=False)
    add_out_option(parser, DEFAULT_FOLDER)
    parser.add_argument(
        "--from", dest="first", type=day, metavar="DAY", help="first day, UTC, e.g. 2026-11-09"
    )
    parser.add_argument(
        "--to", dest="last", type=day, metavar="DAY", help="last day (default: the newest in the tables)"
    )
    parser.add_argument(
        "--days",
        type=int,
        default=7,
        metavar="N",
        help="number of days without --from (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 if notifications are not accounted for: overdue, sent but never received, or for "
        "unknown queues",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="KIND=NUMBER",
        help="with --check: accept up to this many, e.g. never_received=50 if other operators' NTF routers are "
        "subscribed; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """1 if the accounting does not add up, or with --check if notifications are not accounted for."""
    chosen = job_options(options)
    from tocsin.pipeline.jobs.report import ReportOptions, run_report
    from tocsin.pipeline.report.verdict import allowances

    allowed = allowances(options.allow)
    figures = run_report(
        chosen, ReportOptions(options.out, options.first, options.last, options.days, allowed)
    )
    off = figures.is_off(allowed) if options.check else bool(figures.period.accounting.difference)
    return int(off)
