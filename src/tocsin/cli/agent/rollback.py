"""`tocsin agent rollback`: takes the store back to an older version of Tocsin."""

from __future__ import annotations

import argparse

from tocsin.cli.agent.output import Output
from tocsin.cli.agent.session import add_common_arguments, opened_store, run_command

NAME = "rollback"
SUMMARY = "take the store back to an older version"
DESCRIPTION = (
    "Undoes changes of the store's tables, newest first, so that an older version of Tocsin can open it. Run this with "
    "the newer version. Everything happens in one transaction. Rows that the older version has no place for stop it, "
    "unless you accept the loss."
)
EXAMPLE = "tocsin agent rollback --to 0008 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        required=True,
        metavar="VERSION",
        help="the last change of the tables that stays: its name or its number, such as 0008; a wrong name lists all",
    )
    parser.add_argument(
        "--lose-data", action="store_true", help="delete rows that the older version has no place for"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="do everything in a transaction, and roll it back"
    )
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _roll_back(options, output))


async def _roll_back(options: argparse.Namespace, output: Output) -> int:
    async with opened_store(options) as (store, _):
        undone, lost = await store.database.roll_back(
            options.to, lose_data=options.lose_data, dry_run=options.dry_run
        )
    output.result({"undone": undone, "lost": lost, "changed": bool(undone) and not options.dry_run})
    would = options.dry_run
    if not undone:
        output.say(f"The store is at version {options.to} already.")
        return 0
    output.say(f"{'Would undo' if would else 'Undone'}: {', '.join(undone)}")
    if lost:
        output.say(f"{'Would be lost' if would else 'Lost'}: {', '.join(lost)}")
    if not would:
        output.say("Use the older version now: this one brings the store up to date again.")
    return 0
