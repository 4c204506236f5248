"""`tocsin smp store import`: from logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse
import logging

from tocsin.cli.routers.broken_lines import add_broken_lines_argument, hint_at_broken_lines
from tocsin.cli.routers.store_transfers import copy_to_database
from tocsin.cli.smp.transfers import add_transfer_arguments, ends_of
from tocsin.smp_router.store.interface import totals_of
from tocsin.smp_router.store.logs.store_files import read_smp_store

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
    from tocsin.smp_router.store.postgres.transfer import (  # needs asyncpg
        fill_database,
        require_empty_database,
    )

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    ends = ends_of(options)
    with hint_at_broken_lines():
        store, report = read_smp_store(
            ends.folder,
            skip_broken_lines=options.skip_broken_lines,
            keep_broken_lines=not options.dry_run,
        )
    if report.skipped or report.broken:
        print(
            f"Left out: {report.skipped} records without a queue, {report.broken} lines that cannot be read."
        )
    return copy_to_database(
        ends.folder,
        totals_of(store),
        lambda: require_empty_database(ends.database_url),
        lambda progress: fill_database(ends.database_url, store, progress),
        dry_run=options.dry_run,
    )
