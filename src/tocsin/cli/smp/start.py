"""`tocsin smp start`: runs the router until a signal stops it."""

from __future__ import annotations

import argparse
import asyncio
import logging

from tocsin.cli.routers.router_kind import (
    add_broken_lines_argument,
    add_log_level_argument,
    add_router_arguments,
    broken_lines_explained,
)
from tocsin.cli.smp.router_kind import SMP
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import StoreError

NAME = "start"
SUMMARY = "run the router"
DESCRIPTION = (
    "Runs the router in the foreground. SIGTERM and SIGINT stop it: it accepts no new connections, sends the answers "
    "that are waiting, and writes everything to disk. The log goes to standard error."
)
EXAMPLE = "tocsin smp start --folder /etc/opt/simplex"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, SMP)
    add_log_level_argument(parser)
    parser.add_argument(
        "--maintenance",
        action="store_true",
        help="read the store, remove expired messages, compact the store, then exit without serving",
    )
    add_broken_lines_argument(parser)
    parser.add_argument(
        "--set-aside-stale-changes",
        action="store_true",
        help="continue without changes to messages that another program has superseded; they are kept in a file",
    )


def run(options: argparse.Namespace) -> int:
    settings = SMP.load_settings(options)
    # Other commands start faster without these.
    from tocsin.smp_router.opened_store import StartOptions
    from tocsin.smp_router.service import run_smp_router
    from tocsin.smp_router.store.logs.store_files import StaleChanges

    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    start = StartOptions(options.maintenance, options.skip_broken_lines, options.set_aside_stale_changes)
    try:
        with broken_lines_explained():
            asyncio.run(run_smp_router(settings, start))
    except StaleChanges as error:
        raise StoreError(
            f"{error}. Start with --set-aside-stale-changes to continue without them; they are kept in a file"
        ) from error
    return ExitCode.OK
