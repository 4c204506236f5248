"""`tocsin ntf start`: runs the router until a signal stops it."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from functools import partial

from tocsin import __version__
from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers import start
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.option_types import lake_folder
from tocsin.errors import ConfigError
from tocsin.ntf_router.fleet.workers import MOST_WORKERS, WorkerPlace, WorkerProcesses, settings_of_worker
from tocsin.ntf_router.settings.files import credentials_of, router_address
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.web.page_server import WEB_HELP, PagePlace
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
        "--lake",
        "--web-lake",
        metavar="PLACE",
        help="with --web: the folder of the pipeline's tables, which the page shows too",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of processes that serve the same ports (default: 1); more than one needs the setting fleet: on. "
        "Control port and metrics of the second and later ones are at the next ports",
    )
    parser.add_argument("--worker", type=WorkerPlace.parse, help=argparse.SUPPRESS)
    parser.add_argument("--compact-log", action="store_true", help=_IGNORED)
    parser.add_argument("--skip-warnings", action="store_true", help=_IGNORED)
    parser.add_argument("--confirm-migrations", choices=("up", "down"), help=_IGNORED)


def run(options: argparse.Namespace) -> int:
    place = None if options.web is None else PagePlace.parse(options.web)
    lake = lake_folder(options.lake)
    settings = NTF.load_settings(options)
    if not 1 <= options.workers <= MOST_WORKERS:
        raise ConfigError(f"--workers must be from 1 to {MOST_WORKERS}")
    if options.workers > 1 and not options.maintenance:
        start.run_process(options, WorkerProcesses(partial(_worker, options), options.workers).run(settings))
        return ExitCode.OK
    if options.worker is not None:
        settings = settings_of_worker(settings, options.worker.number)
        _make_folder(settings)
    credentials = credentials_of(settings)
    print(f"SMP notifications server v{__version__} (Tocsin)", flush=True)
    print(f"Fingerprint: {encode_base64url(credentials.fingerprint)}")
    if settings.public_hosts:
        print(f"Server address: {router_address(settings, credentials.fingerprint)}", flush=True)
    # Other commands start faster without these.
    from tocsin.ntf_router.service import run_ntf_router
    from tocsin.web.router_page import NtfPage

    page = None if place is None else NtfPage(place, lake)

    async def run_router() -> None:
        place: WorkerPlace | None = options.worker
        with nullcontext() if place is None else place.tied():
            await run_ntf_router(
                settings,
                maintenance=options.maintenance,
                skip_broken_lines=options.skip_broken_lines,
                page=page,
                inherited=None if place is None else place.sockets(),
            )

    start.run_process(options, run_router())
    return ExitCode.OK


def _make_folder(settings: NtfSettings) -> None:
    """A worker's statistics have a folder of their own."""
    if settings.store is not None:
        try:
            settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{settings.store} cannot be created: {error.strerror}") from error


def _worker(options: argparse.Namespace, place: str) -> list[str]:
    """Return the command line of a worker: that of this process, for one of several."""
    command = [sys.executable, "-m", "tocsin", "ntf", "start", "--log-level", options.log_level]
    if options.folder is not None:
        command += ["--folder", str(options.folder)]
    if options.config is not None:
        command += ["--config", str(options.config)]
    for each in options.set:
        command += ["--set", each]
    if options.web is not None and place.startswith("1:"):
        command += ["--web", options.web]
        if options.lake is not None:
            command += ["--lake", options.lake]
    return [*command, "--worker", place]
