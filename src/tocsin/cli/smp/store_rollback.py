"""`tocsin smp store rollback`: takes the tables in PostgreSQL back to an older version of Tocsin."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import store_rollback
from tocsin.cli.smp.router_kind import SMP_STORE

NAME = "rollback"
SUMMARY = "take the tables in PostgreSQL back to an older version"
DESCRIPTION = (
    "Undoes changes of the tables, newest first, so that an older version of Tocsin can use them. Stop the router "
    "first, and run this with the newer version. Everything happens in one transaction. Rows that the older version "
    "has no place for stop it, unless you accept the loss."
)
EXAMPLE = "tocsin smp store rollback --to 0003 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_rollback.add_arguments(parser, SMP_STORE)


def run(options: argparse.Namespace) -> int:
    return store_rollback.run(options, SMP_STORE)
