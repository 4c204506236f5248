"""`tocsin smp start`: runs the router until a signal stops it."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import start
from tocsin.cli.smp.router_kind import SMP
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError, StoreError

NAME = "start"
SUMMARY = start.SUMMARY
DESCRIPTION = start.DESCRIPTION
EXAMPLE = "tocsin smp start --folder /etc/opt/simplex"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    start.add_arguments(parser, SMP, "read the store, remove expired messages, compact the store")
    parser.add_argument(
        "--set-aside-stale-changes",
        action="store_true",
        help="continue without changes to messages that another program has superseded; they are kept in a file",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of processes that accept connections and do TLS and encryption, so that several cores are used "
        "(default: 1, and one process does everything)",
    )


def run(options: argparse.Namespace) -> int:
    settings = SMP.load_settings(options)
    # Other commands start faster without these.
    from tocsin.smp_router.opened_store import StartOptions
    from tocsin.smp_router.service import run_smp_router
    from tocsin.smp_router.store.logs.store_files import StaleChanges
    from tocsin.smp_router.workers.worker_processes import MOST_WORKERS

    if not 1 <= options.workers <= MOST_WORKERS:
        raise ConfigError(f"--workers must be from 1 to {MOST_WORKERS}")
    chosen = StartOptions(options.maintenance, options.skip_broken_lines, options.set_aside_stale_changes)
    try:
        start.run_process(options, run_smp_router(settings, chosen, workers=options.workers))
    except StaleChanges as error:
        raise StoreError(
            f"{error}. Start with --set-aside-stale-changes to continue without them; they are kept in a file"
        ) from error
    return ExitCode.OK
