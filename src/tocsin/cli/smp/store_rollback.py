"""`tocsin smp store rollback`: takes the tables in PostgreSQL back to an older version of Tocsin."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import store_rollback
from tocsin.cli.smp.router_kind import SMP_STORE

NAME = "rollback"
SUMMARY, DESCRIPTION = store_rollback.SUMMARY, store_rollback.DESCRIPTION
EXAMPLE = "tocsin smp store rollback --to 0003 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    store_rollback.add_arguments(parser, SMP_STORE)


def run(options: argparse.Namespace) -> int:
    return store_rollback.run(options, SMP_STORE)
