"""`tocsin smp start`: run the router until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging

from tocsin.cli.routers.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.smp.files import add_config_argument, settings_of
from tocsin.errors import StoreError

NAME = "start"
SUMMARY = "run the router"
DESCRIPTION = (
    "Runs the router in the foreground. SIGTERM and SIGINT stop it: no new connections, waiting answers are sent, "
    "everything is on disk. The log goes to standard error."
)
EXAMPLE = "tocsin smp start --config /etc/opt/simplex/smp-server.ini"

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="INFO", help="what is logged (default INFO)"
    )
    parser.add_argument(
        "--maintenance",
        action="store_true",
        help="read the store, remove old messages, compact it, then exit without serving",
    )
    add_broken_lines_argument(parser)
    parser.add_argument(
        "--set-aside-stale-changes",
        action="store_true",
        help="go on without changes of messages that another program has overtaken; they are kept in a file",
    )


def run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    from tocsin.smp_router.service import (  # other commands start faster without it
        StartOptions,
        run_smp_router,
    )
    from tocsin.smp_router.store.logs.store_files import StaleChanges

    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    start = StartOptions(options.maintenance, options.skip_broken_lines, options.set_aside_stale_changes)
    try:
        with hint_at_broken_lines():
            asyncio.run(run_smp_router(settings, start))
    except StaleChanges as error:
        raise StoreError(f"{error}. --set-aside-stale-changes goes on without them and keeps them") from error
    return 0
