"""`tocsin smp|ntf store rollback`: takes the tables back to an older version."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final, TypeVar

from tocsin.cli.routers.router_kind import S, add_router_arguments
from tocsin.cli.routers.store_transfers import RouterStore, add_database_argument
from tocsin.cli.terminal.exit_codes import ExitCode

SUMMARY: Final = "take the tables in PostgreSQL back to an older version"
DESCRIPTION: Final = (
    "Undoes changes of the tables, newest first, so that an older version of Tocsin can use them. Stop the router "
    "first, and run this with the newer version. Everything happens in one transaction. Rows that the older version "
    "has no place for stop it, unless you accept the loss."
)
W = TypeVar("W")


def add_arguments(parser: argparse.ArgumentParser, store: RouterStore[S, W]) -> None:
    add_router_arguments(parser, store.kind)
    parser.add_argument(
        "--to",
        required=True,
        metavar="VERSION",
        help="the last change of the tables that stays: its name or its number, such as 0003. The older version says "
        "which ones it lacks when it refuses the store; a wrong name lists all",
    )
    add_database_argument(parser)
    parser.add_argument(
        "--lose-data", action="store_true", help="delete rows that the older version has no place for"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="do everything in a transaction, and roll it back"
    )


def run(options: argparse.Namespace, store: RouterStore[S, W]) -> int:
    place = store.database(options, store.kind.load_settings(options))
    undone, lost = asyncio.run(
        store.transfers.roll_back_database(
            place, options.to, lose_data=options.lose_data, dry_run=options.dry_run
        )
    )
    if not undone:
        print(f"The store is at version {options.to} already.")
        return ExitCode.OK
    print(f"{'Would undo' if options.dry_run else 'Undone'}: {', '.join(undone)}")
    if lost:
        print(f"{'Would be lost' if options.dry_run else 'Lost'}: {', '.join(lost)}")
    if not options.dry_run:
        print("Start the older version now: this one brings the tables up to date again.")
    return ExitCode.OK
