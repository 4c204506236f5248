"""`tocsin smp store import`: from logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse
import asyncio
import logging

from tocsin.cli.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.smp_transfers import add_transfer_arguments, ends_of, progress_bar
from tocsin.stores.memory.smp_store_files import read_smp_store
from tocsin.stores.transfers import totals_of

NAME = "import"
SUMMARY = "copy the logs into PostgreSQL"
DESCRIPTION = (
    "Copies queues, services, messages and notifications from the logs of a router, of this one or of the "
    "reference, into a database without a store. It is one transaction: all of it is there afterwards, or nothing. "
    "The logs stay as they are."
)
EXAMPLE = "tocsin smp store import --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_transfer_arguments(parser)
    add_broken_lines_argument(parser)


def run(options: argparse.Namespace) -> int:
    from tocsin.stores.postgres.store_transfer import fill_database, require_empty_database  # needs asyncpg

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    ends = ends_of(options)
    with hint_at_broken_lines():
        store, report = read_smp_store(
            ends.folder,
            skip_broken_lines=options.skip_broken_lines,
            keep_broken_lines=not options.dry_run,
        )
    totals = totals_of(store)
    if report.skipped or report.broken:
        print(
            f"Left out: {report.skipped} records without a queue, {report.broken} lines that cannot be read."
        )
    if options.dry_run:
        asyncio.run(require_empty_database(ends.database_url))
        print(f"Would be copied from {ends.folder}: {totals}")
        return 0
    with progress_bar("Writing to PostgreSQL", totals) as progress:
        asyncio.run(fill_database(ends.database_url, store, progress))
    print(f"Copied from {ends.folder}, and counted in the database: {totals}")
    return 0
