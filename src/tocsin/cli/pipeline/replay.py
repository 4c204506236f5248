"""`tocsin pipeline replay`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, job_options

NAME = "replay"
SUMMARY = "find notifications without an outcome, for `tocsin ntf replay`"
DESCRIPTION = (
    "Looks in the table `notifications` for those that an NTF router received long ago and that were neither accepted "
    "nor failed nor replaced, and writes a request with their hashes. `tocsin ntf replay` at the router delivers those "
    "that wait in its store, and lists those that are lost."
)
EXAMPLE = "tocsin pipeline replay --older-than 60 --out replay.jsonl && tocsin ntf replay replay.jsonl"

DEFAULT_OUT: Final = Path("tocsin-replay.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than",
        type=float,
        default=60,
        metavar="MINUTES",
        help="received this long before the newest event (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help="the request (default: %(default)s)"
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    from tocsin.pipeline.jobs.replay import run_replay

    run_replay(job, options.out, minutes=options.older_than)
    return 0
