"""`tocsin smp store …`: move a router's store between logs and PostgreSQL."""

from __future__ import annotations

from tocsin.cli.smp import store_export as smp_store_export
from tocsin.cli.smp import store_export_notifiers as smp_store_export_notifiers
from tocsin.cli.smp import store_import as smp_store_import

NAME = "store"
SUMMARY = "move queues and messages between logs and PostgreSQL"
DESCRIPTION = (
    "Copies everything a router keeps from its logs into PostgreSQL, or back, while no router uses either. "
    "The source stays as it is, and a target that has a store is refused."
)
EXAMPLE = "tocsin smp store import --dry-run"
SUBCOMMANDS = (smp_store_import, smp_store_export, smp_store_export_notifiers)
