"""`tocsin ntf store export`: copies PostgreSQL into logs, which the reference can read."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF_STORE, add_schema_argument
from tocsin.cli.routers import store_transfers

NAME = "export"
SUMMARY = "copy PostgreSQL into logs"
DESCRIPTION = (
    "Copies tokens, subscriptions, services and last notifications from the database, Tocsin's or the reference's, "
    "into logs in the reference's format, in a folder that has no store. The database stays as it is."
)
EXAMPLE = "tocsin ntf store export --logs /var/opt/simplex-notifications-export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_transfers.add_export_arguments(parser, NTF_STORE)
    add_schema_argument(parser)


def run(options: argparse.Namespace) -> int:
    return store_transfers.run_export(options, NTF_STORE)
