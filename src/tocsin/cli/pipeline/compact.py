"""`tocsin pipeline compact`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import add_job_options, job_options

NAME = "compact"
SUMMARY = "compact a router's store log of any size"
DESCRIPTION = (
    "Turns the store log of an NTF or SMP router, ours or the reference's, into the log that its router would write at "
    "its next start: one line for each token, subscription, service or queue. The log may be larger than memory, and "
    "is not changed. Replace it with the result while the router is stopped, or import the result into PostgreSQL with "
    "`tocsin ntf store import` or `tocsin smp store import`."
)
EXAMPLE = "tocsin pipeline compact ntf-server-store.log --out compact/ntf-server-store.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="ntf-server-store.log or smp-server-store.log")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="the compact log; it contains keys, so only its owner may read it",
    )
    parser.add_argument(
        "--router", choices=("ntf", "smp"), help="kind of router (default: by the log's name)"
    )
    parser.add_argument(
        "--skip-broken-lines", action="store_true", help="leave out lines that cannot be read"
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.compact import CompactOptions, run_compact

    return run_compact(
        job, CompactOptions(options.log, options.out, options.router, options.skip_broken_lines)
    )
