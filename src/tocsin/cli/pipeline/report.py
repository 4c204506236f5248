"""`tocsin pipeline report`: a page with all figures."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, job_options

NAME = "report"
SUMMARY = "make an HTML page and CSV files of what happened"
DESCRIPTION = (
    "Makes one HTML page that needs nothing else (no network, no scripts) and CSV files: the accounting, the delivery "
    "funnel, latencies, hours and SMP hosts, tokens, reasons of failures, drift, quarantined lines, and what changed "
    "since last week. Safe to run again: files are replaced whole."
)
EXAMPLE = "tocsin pipeline report --from 2026-11-09 --to 2026-11-15 --out report"

DEFAULT_FOLDER: Final = Path("tocsin-report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help="folder of the files (default: %(default)s)",
    )
    parser.add_argument(
        "--from", dest="first", type=day, metavar="DAY", help="first day, UTC, e.g. 2026-11-09"
    )
    parser.add_argument(
        "--to", dest="last", type=day, metavar="DAY", help="last day (default: the newest there is)"
    )
    parser.add_argument(
        "--days",
        type=int,
        default=7,
        metavar="N",
        help="how many days, without --from (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """1 if the accounting does not add up."""
    chosen = job_options(options)
    from tocsin.pipeline.jobs.report import ReportOptions, run_report

    figures = run_report(chosen, ReportOptions(options.out, options.first, options.last, options.days))
    return 1 if figures.period.accounting.difference else 0


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no day: write it like 2026-11-15") from None
