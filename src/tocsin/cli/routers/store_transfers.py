"""`tocsin smp|ntf store import` and `export`: copies a store from logs into PostgreSQL, or back."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tocsin.cli.routers.router_kind import (
    RouterKind,
    S,
    add_broken_lines_argument,
    add_router_arguments,
    broken_lines_explained,
)
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.progress import progress_bar
from tocsin.errors import ConfigError
from tocsin.migrate.stores import StorePlace, StoreTransfers
from tocsin.operate.log_lines import SHORT, log_to_stderr

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class RouterStore(Generic[S, W]):
    """The store of one kind of router."""

    kind: RouterKind[S]
    transfers: StoreTransfers[W]
    database: Callable[[argparse.Namespace, S], StorePlace]
    """The database that the options or the settings name. Raises ConfigError if neither does."""


def add_import_arguments(parser: argparse.ArgumentParser, store: RouterStore[S, W]) -> None:
    add_export_arguments(parser, store)
    add_broken_lines_argument(parser)


def add_export_arguments(parser: argparse.ArgumentParser, store: RouterStore[S, W]) -> None:
    add_router_arguments(parser, store.kind)
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="folder of the logs (default: store_path of the settings)"
    )
    add_database_argument(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="read the source and check the target; write nothing"
    )


def add_database_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="URL",
        help="URL of the database (default: the one of the settings); other users of this machine may see it in the "
        "process list",
    )


def run_import(options: argparse.Namespace, store: RouterStore[S, W]) -> int:
    log_to_stderr(logging.WARNING, SHORT)
    transfers = store.transfers
    logs, database = _ends(options, store)
    with broken_lines_explained():
        whole, left_out = transfers.read_logs(
            logs, skip_broken_lines=options.skip_broken_lines, keep_broken_lines=not options.dry_run
        )
    if left_out:
        print(left_out[0].upper() + left_out[1:])
    totals = transfers.totals(whole)
    if options.dry_run:
        asyncio.run(transfers.require_empty_database(database))
        print(f"Would copy from {logs}: {totals}")
        return ExitCode.OK
    with progress_bar("Writing to PostgreSQL", totals) as progress:
        asyncio.run(transfers.write_database(database, whole, progress))
    print(f"Copied from {logs} and counted in the database: {totals}")
    return ExitCode.OK


def run_export(options: argparse.Namespace, store: RouterStore[S, W]) -> int:
    transfers = store.transfers
    logs, database = _ends(options, store)
    transfers.require_empty_logs(logs)
    whole = asyncio.run(transfers.read_database(database))
    totals = transfers.totals(whole)
    if options.dry_run:
        print(f"Would copy to {logs}: {totals}")
        return ExitCode.OK
    with progress_bar("Writing logs", totals) as progress:
        transfers.write_logs(logs, whole, progress)
    print(f"Copied to {logs} and counted there: {totals}")
    return ExitCode.OK


def _ends(options: argparse.Namespace, store: RouterStore[S, W]) -> tuple[Path, StorePlace]:
    settings = store.kind.load_settings(options)
    logs = options.logs or settings.store
    if logs is None:
        raise ConfigError("[STORE_LOG] enable is off, so the settings name no folder: name one with --logs")
    return logs, store.database(options, settings)
