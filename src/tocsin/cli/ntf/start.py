"""`tocsin ntf start`: run the router until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path

from tocsin import __version__
from tocsin.cli.ntf.files import add_config_argument, settings_of
from tocsin.cli.routers.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.ntf_router.settings.locations import credentials_of, router_address
from tocsin.web.page_address import WEB_HELP, PagePlace
from tocsin.wire.base64url import encode_base64url

NAME = "start"
SUMMARY = "run the router"
DESCRIPTION = (
    "Runs the router in the foreground. SIGTERM and SIGINT stop it: no new connections, waiting answers are sent, "
    "everything is on disk. The log goes to standard error."
)
EXAMPLE = "tocsin ntf start --config /etc/opt/simplex-notifications/ntf-server.ini"

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument(
        "-m",
        "--maintenance",
        action="store_true",
        help="restore statistics, migrate the store, save everything, then exit without serving",
    )
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=_LOG_LEVELS,
        default="INFO",
        help="what is logged (default INFO)",
    )
    parser.add_argument("--web", metavar="[HOST:]PORT", help=WEB_HELP)
    parser.add_argument(
        "--web-lake", type=Path, metavar="FOLDER", help="the pipeline's tables, to be shown on the page too"
    )
    add_broken_lines_argument(parser)
    for option, values in (
        ("--compact-log", None),
        ("--skip-warnings", None),
        ("--confirm-migrations", ("up", "down")),
    ):
        about = "accepted for the reference's scripts; the log is compacted and migrations are made anyway"
        if values is None:
            parser.add_argument(option, action="store_true", help=about)
        else:
            parser.add_argument(option, choices=values, help=about)


def run(options: argparse.Namespace) -> int:
    place = None if options.web is None else PagePlace.parse(options.web)
    settings = settings_of(options)
    credentials = credentials_of(settings)
    print(f"SMP notifications server v{__version__} (Tocsin)", flush=True)
    print(f"Fingerprint: {encode_base64url(credentials.fingerprint)}")
    if settings.public_hosts:
        print(f"Server address: {router_address(settings, credentials.fingerprint)}", flush=True)
    # Other commands start faster without these.
    from tocsin.ntf_router.service import run_ntf_router
    from tocsin.web.router_page import NtfPage

    page = None if place is None else NtfPage(place, options.web_lake)

    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with hint_at_broken_lines():
        asyncio.run(
            run_ntf_router(
                settings,
                maintenance=options.maintenance,
                skip_broken_lines=options.skip_broken_lines,
                page=page,
            )
        )
    return 0
