"""`tocsin smp store export`: from PostgreSQL into logs, which the reference reads too."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.routers.store_transfers import copy_to_logs
from tocsin.cli.smp.transfers import add_transfer_arguments, ends_of
from tocsin.smp_router.store.interface import totals_of
from tocsin.smp_router.store.logs.store_files import fill_folder, require_empty_folder
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

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
    from tocsin.smp_router.store.postgres.transfer import read_whole_database  # needs asyncpg

    ends = ends_of(options)
    require_empty_folder(ends.folder)
    store = asyncio.run(read_whole_database(ends.database_url, SmpMemoryStore()))
    return copy_to_logs(
        ends.folder,
        totals_of(store),
        lambda progress: fill_folder(ends.folder, store, progress),
        dry_run=options.dry_run,
    )
