"""`tocsin ntf store rollback`: takes the tables in PostgreSQL back to an older version of Tocsin."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF_STORE, add_schema_argument
from tocsin.cli.routers import store_rollback

NAME = "rollback"
SUMMARY, DESCRIPTION = store_rollback.SUMMARY, store_rollback.DESCRIPTION
EXAMPLE = "tocsin ntf store rollback --to 0003 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_rollback.add_arguments(parser, NTF_STORE)
    add_schema_argument(parser)


def run(options: argparse.Namespace) -> int:
    return store_rollback.run(options, NTF_STORE)
