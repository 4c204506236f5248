"""`tocsin ntf store import`: copies logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF_STORE, add_schema_argument
from tocsin.cli.routers import store_transfers

NAME = "import"
SUMMARY = "copy the logs into PostgreSQL"
DESCRIPTION = (
    "Copies tokens, subscriptions, services and last notifications from a router's logs, Tocsin's or the "
    "reference's, into a database that has no store. The copy is one transaction: it succeeds as a whole or changes "
    "nothing. The logs stay as they are."
)
EXAMPLE = "tocsin ntf store import --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_transfers.add_import_arguments(parser, NTF_STORE)
    add_schema_argument(parser)


def run(options: argparse.Namespace) -> int:
    return store_transfers.run_import(options, NTF_STORE)
