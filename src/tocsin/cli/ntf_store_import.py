"""`tocsin ntf store import`: from logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse
import asyncio
import logging

from tocsin.cli.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.ntf_transfers import add_transfer_arguments, ends_of
from tocsin.cli.smp_transfers import progress_bar
from tocsin.stores.memory.ntf_store_files import read_ntf_store
from tocsin.stores.ntf_transfers import ntf_totals_of
from tocsin.stores.transfers import Progress

NAME = "import"
SUMMARY = "copy the logs into PostgreSQL"
DESCRIPTION = (
    "Copies tokens, subscriptions, services and last notifications from the logs of a router, of this one or of the "
    "reference, into a database without a store. It is one transaction: all of it is there afterwards, or nothing. "
    "The logs stay as they are."
)
EXAMPLE = "tocsin ntf store import --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_transfer_arguments(parser)
    add_broken_lines_argument(parser)


def run(options: argparse.Namespace) -> int:
    from tocsin.stores.postgres.ntf_transfer import (  # needs asyncpg
        fill_ntf_database,
        require_empty_ntf_database,
    )

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    ends = ends_of(options)
    with hint_at_broken_lines():
        store, report = read_ntf_store(
            ends.folder,
            skip_broken_lines=options.skip_broken_lines,
            keep_broken_lines=not options.dry_run,
        )
    totals = ntf_totals_of(store)
    if report.skipped or report.broken:
        print(
            f"Left out: {report.skipped} records without a token or subscription, or there already; "
            f"{report.broken} lines that cannot be read."
        )

    async def copy(progress: Progress | None) -> None:
        async with ends.database() as url:
            if progress is None:
                await require_empty_ntf_database(url, ends.schema)
            else:
                await fill_ntf_database(url, ends.schema, store, progress)

    if options.dry_run:
        asyncio.run(copy(None))
        print(f"Would be copied from {ends.folder}: {totals}")
        return 0
    with progress_bar("Writing to PostgreSQL", totals) as progress:
        asyncio.run(copy(progress))
    print(f"Copied from {ends.folder}, and counted in the database: {totals}")
    return 0
