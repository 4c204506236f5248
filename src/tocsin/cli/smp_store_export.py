"""`tocsin smp store export`: from PostgreSQL into logs, which the reference reads too."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.smp_transfers import add_transfer_arguments, ends_of, progress_bar
from tocsin.stores.memory.smp_memory_store import SmpMemoryStore
from tocsin.stores.memory.store_export import fill_folder, require_empty_folder
from tocsin.stores.transfers import totals_of

NAME = "export"
SUMMARY = "copy PostgreSQL into logs"
DESCRIPTION = (
    "Copies queues, services, messages and notifications from the database into logs in the reference's format, in a "
    "folder without a store. The database stays as it is."
)
EXAMPLE = "tocsin smp store export --folder /var/opt/simplex-export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_transfer_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from tocsin.stores.postgres.store_transfer import read_whole_database  # needs asyncpg

    ends = ends_of(options)
    require_empty_folder(ends.folder)
    store = asyncio.run(read_whole_database(ends.database_url, SmpMemoryStore()))
    totals = totals_of(store)
    if options.dry_run:
        print(f"Would be copied to {ends.folder}: {totals}")
        return 0
    with progress_bar("Writing logs", totals) as progress:
        fill_folder(ends.folder, store, progress)
    print(f"Copied to {ends.folder}, and counted there: {totals}")
    return 0
