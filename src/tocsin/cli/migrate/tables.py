"""`tocsin migrate tables`: takes the reference's tables in PostgreSQL to another of its releases."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.terminal.exit_codes import ExitCode

NAME = "tables"
SUMMARY = "take the reference's tables in PostgreSQL from release 6.5 to 7.0, or back"
DESCRIPTION = (
    "Finds out which server and which release the tables belong to, and makes them those of another release, in one "
    "transaction. The change is recorded as the reference does, so its server accepts the tables. Release 6.5 does not "
    "start on tables of 7.0, so use this before you go back to it. Stop the server first, and make a backup."
)
EXAMPLE = "tocsin migrate tables --database postgresql://ntf@/ntf_server_store --release 6.5 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database", required=True, metavar="URL", help="the PostgreSQL database of the server"
    )
    parser.add_argument(
        "--schema", default="", metavar="NAME", help="its db_schema (default: smp_server or ntf_server)"
    )
    parser.add_argument("--release", required=True, choices=("6.5", "7.0"), help="the release to go to")
    parser.add_argument(
        "--lose-data", action="store_true", help="delete certificates that release 6.5 has no place for"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="do everything in a transaction, and roll it back"
    )
    parser.add_argument(
        "--ignore-running",
        action="store_true",
        help="continue although other programs are connected to the database; the server itself must be stopped",
    )


def run(options: argparse.Namespace) -> int:
    from tocsin.migrate.reference_releases import change_release, lacks_pgcrypto  # needs asyncpg

    change = asyncio.run(
        change_release(
            options.database,
            options.schema,
            options.release,
            lose_data=options.lose_data,
            ignore_running=options.ignore_running,
            dry_run=options.dry_run,
        )
    )
    print(f"Found: {change.found}")
    if not change.done:
        print(f"The tables are those of release {options.release} already.")
        return ExitCode.OK
    verb = "undo" if options.release == "6.5" else "make"
    done = {"undo": "Undone", "make": "Made"}[verb]
    print(f"{f'Would {verb}' if options.dry_run else done}: {', '.join(change.done)}")
    if change.lost:
        print(f"{'Would be lost' if options.dry_run else 'Lost'}: {', '.join(change.lost)}")
    if options.release == "7.0" and asyncio.run(lacks_pgcrypto(options.database)):
        print(
            "Note: these statements do not need the extension pgcrypto, but later releases may: run `CREATE EXTENSION "
            "pgcrypto SCHEMA public` in this database"
        )
    if not options.dry_run:
        print(f"{change.program} {options.release} can use the tables now.")
    return ExitCode.OK
