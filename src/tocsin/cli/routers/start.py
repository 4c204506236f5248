"""`tocsin smp|ntf start`: arguments, logging and errors that both routers share."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Final

from tocsin.cli.routers.router_kind import (
    RouterKind,
    S,
    add_broken_lines_argument,
    add_router_arguments,
    broken_lines_explained,
)
from tocsin.operate.log_lines import log_to_stderr

SUMMARY: Final = "run the router"
DESCRIPTION: Final = (
    "Runs the router in the foreground. SIGTERM, SIGINT and SIGHUP stop it: it accepts no new connections, sends the "
    "answers that are waiting, and writes everything to disk. The log goes to standard error."
)
_LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: argparse.ArgumentParser, kind: RouterKind[S], maintenance: str) -> None:
    """`maintenance` says what the router does in that mode."""
    add_router_arguments(parser, kind)
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=_LOG_LEVELS,
        default="INFO",
        help="the lowest level to log (default: INFO)",
    )
    parser.add_argument(
        "--maintenance", "-m", action="store_true", help=f"{maintenance}, then exit without serving"
    )
    add_broken_lines_argument(parser)


def run_process(options: argparse.Namespace, process: Coroutine[None, None, None]) -> None:
    log_to_stderr(options.log_level)
    with broken_lines_explained():
        asyncio.run(process)
