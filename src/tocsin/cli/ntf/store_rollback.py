"""`tocsin ntf store rollback`: takes the tables in PostgreSQL back to an older version of Tocsin."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF_STORE, add_schema_argument
from tocsin.cli.routers import store_rollback

NAME = "rollback"
SUMMARY = "take the tables in PostgreSQL back to an older version"
DESCRIPTION = (
    "Undoes changes of the tables, newest first, so that an older version of Tocsin can use them. Stop the router "
    "first, and run this with the newer version. Everything happens in one transaction. Rows that the older version "
    "has no place for stop it, unless you accept the loss."
)
EXAMPLE = "tocsin ntf store rollback --to 0003 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_rollback.add_arguments(parser, NTF_STORE)
    add_schema_argument(parser)


def run(options: argparse.Namespace) -> int:
    return store_rollback.run(options, NTF_STORE)
