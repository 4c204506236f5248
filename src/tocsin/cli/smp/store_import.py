"""`tocsin smp store import`: copies logs, ours or the reference's, into PostgreSQL."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import store_transfers
from tocsin.cli.smp.router_kind import SMP_STORE

NAME = "import"
SUMMARY = "copy the logs into PostgreSQL"
DESCRIPTION = (
    "Copies queues, services, messages and notifications from a router's logs, Tocsin's or the reference's, into a "
    "database that has no store. The copy is one transaction: it succeeds as a whole or changes nothing. The logs stay "
    "as they are."
)
EXAMPLE = "tocsin smp store import --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_transfers.add_import_arguments(parser, SMP_STORE)


def run(options: argparse.Namespace) -> int:
    return store_transfers.run_import(options, SMP_STORE)
