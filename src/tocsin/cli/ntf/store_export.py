"""`tocsin ntf store export`: from PostgreSQL into logs, which the reference reads too."""

from __future__ import annotations

import argparse
import asyncio

from tocsin.cli.ntf.transfers import add_transfer_arguments, ends_of
from tocsin.cli.routers.store_transfers import copy_to_logs
from tocsin.ntf_router.store.interface import ntf_totals_of
from tocsin.ntf_router.store.logs.store_files import fill_ntf_folder, require_empty_ntf_folder
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore

NAME = "export"
SUMMARY = "copy PostgreSQL into logs"
DESCRIPTION = (
    "Copies tokens, subscriptions, services and last notifications from the database, ours or the reference's, into "
    "logs in the reference's format, in a folder without a store. The database stays as it is."
)
EXAMPLE = "tocsin ntf store export --folder /var/opt/simplex-export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_transfer_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database  # needs asyncpg

    ends = ends_of(options)
    require_empty_ntf_folder(ends.folder)

    async def read() -> NtfMemoryStore:
        async with ends.database() as url:
            return await read_whole_ntf_database(url, ends.schema, NtfMemoryStore())

    store = asyncio.run(read())
    return copy_to_logs(
        ends.folder,
        ntf_totals_of(store),
        lambda progress: fill_ntf_folder(ends.folder, store, progress),
        dry_run=options.dry_run,
    )
