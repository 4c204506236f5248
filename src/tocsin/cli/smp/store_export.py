"""`tocsin smp store export`: copies PostgreSQL into logs, which the reference can read."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import store_transfers
from tocsin.cli.smp.router_kind import SMP_STORE

NAME = "export"
SUMMARY = "copy PostgreSQL into logs"
DESCRIPTION = (
    "Copies queues, services, messages and notifications from the database into logs in the reference's format, in a "
    "folder that has no store. The database stays as it is."
)
EXAMPLE = "tocsin smp store export --logs /var/opt/simplex-export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_transfers.add_export_arguments(parser, SMP_STORE)


def run(options: argparse.Namespace) -> int:
    return store_transfers.run_export(options, SMP_STORE)
