"""`tocsin ntf store import`: from logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse
import logging

from tocsin.cli.ntf.transfers import add_transfer_arguments, ends_of
from tocsin.cli.routers.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.routers.store_transfers import copy_to_database
from tocsin.durable.transfers import Progress
from tocsin.ntf_router.store.interface import ntf_totals_of
from tocsin.ntf_router.store.logs.store_files import read_ntf_store

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
    from tocsin.ntf_router.store.postgres.transfer import (  # needs asyncpg
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
    if report.skipped or report.broken:
        print(
            f"Left out: {report.skipped} records without a token or subscription, or there already; "
            f"{report.broken} lines that cannot be read."
        )

    async def require_empty() -> None:
        async with ends.database() as url:
            await require_empty_ntf_database(url, ends.schema)

    async def fill(progress: Progress) -> None:
        async with ends.database() as url:
            await fill_ntf_database(url, ends.schema, store, progress)

    totals = ntf_totals_of(store)
    return copy_to_database(ends.folder, totals, require_empty, fill, dry_run=options.dry_run)
