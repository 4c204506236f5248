"""`tocsin ntf start`: runs the router until a signal stops it."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin import __version__
from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers import start
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.ntf_router.settings.files import credentials_of, router_address
from tocsin.web.page_address import WEB_HELP, PagePlace
from tocsin.wire.base64url import encode_base64url

NAME = "start"
SUMMARY = start.SUMMARY
DESCRIPTION = start.DESCRIPTION
EXAMPLE = "tocsin ntf start --folder /etc/opt/simplex-notifications"

_IGNORED = "accepted for scripts of the reference; Tocsin always compacts the log and migrates the store"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    start.add_arguments(parser, NTF, "restore statistics, migrate the store, save everything")
    parser.add_argument("--web", metavar="[HOST:]PORT", help=WEB_HELP)
    parser.add_argument(
        "--web-lake",
        type=Path,
        metavar="DIR",
        help="folder of the pipeline's tables, which the page shows too",
    )
    parser.add_argument("--compact-log", action="store_true", help=_IGNORED)
    parser.add_argument("--skip-warnings", action="store_true", help=_IGNORED)
    parser.add_argument("--confirm-migrations", choices=("up", "down"), help=_IGNORED)


def run(options: argparse.Namespace) -> int:
    place = None if options.web is None else PagePlace.parse(options.web)
    settings = NTF.load_settings(options)
    credentials = credentials_of(settings)
    print(f"SMP notifications server v{__version__} (Tocsin)", flush=True)
    print(f"Fingerprint: {encode_base64url(credentials.fingerprint)}")
    if settings.public_hosts:
        print(f"Server address: {router_address(settings, credentials.fingerprint)}", flush=True)
    # Other commands start faster without these.
    from tocsin.ntf_router.service import run_ntf_router
    from tocsin.web.router_page import NtfPage

    page = None if place is None else NtfPage(place, options.web_lake)
    router = run_ntf_router(
        settings,
        maintenance=options.maintenance,
        skip_broken_lines=options.skip_broken_lines,
        page=page,
    )
    start.run_process(options, router)
    return ExitCode.OK
