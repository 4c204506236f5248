"""`tocsin smp start`: run the router until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging

from tocsin.cli.smp_files import add_config_argument, settings_of

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
        "--maintenance", action="store_true", help="read and compact the store, then exit without serving"
    )


def run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    from tocsin.cli.smp_service import run_smp_router  # other commands start faster without it

    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(run_smp_router(settings, maintenance=options.maintenance))
    return 0
