"""`tocsin ntf store …`: moves a router's store between logs and PostgreSQL, and back to an older version."""

from __future__ import annotations

from tocsin.cli.ntf import store_export, store_export_subscriptions, store_import, store_rollback

NAME = "store"
SUMMARY = "move tokens and subscriptions between logs and PostgreSQL, or back to an older version"
DESCRIPTION = (
    "Copies a router's whole store from its logs into PostgreSQL, or back, while no router uses either. The source "
    "stays as it is. A target that already has a store is refused."
)
EXAMPLE = "tocsin ntf store import --dry-run"
SUBCOMMANDS = (store_import, store_export, store_export_subscriptions, store_rollback)
