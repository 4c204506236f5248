"""`tocsin ntf store …`: move a router's store between logs and PostgreSQL."""

from __future__ import annotations

from tocsin.cli.ntf import store_export as ntf_store_export
from tocsin.cli.ntf import store_export_subscriptions as ntf_store_export_subscriptions
from tocsin.cli.ntf import store_import as ntf_store_import

NAME = "store"
SUMMARY = "move tokens and subscriptions between logs and PostgreSQL"
DESCRIPTION = (
    "Copies everything a router keeps from its logs into PostgreSQL, or back, while no router uses either. "
    "The source stays as it is, and a target that has a store is refused."
)
EXAMPLE = "tocsin ntf store import --dry-run"
SUBCOMMANDS = (ntf_store_import, ntf_store_export, ntf_store_export_subscriptions)
