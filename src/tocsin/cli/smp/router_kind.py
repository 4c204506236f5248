"""The SMP router as the shared commands see it."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin.cli.routers.router_kind import RouterKind
from tocsin.cli.routers.store_transfers import RouterStore
from tocsin.errors import ConfigError
from tocsin.migrate.smp_stores import SMP_SCHEMA, SmpTransfers
from tocsin.migrate.stores import StorePlace
from tocsin.smp_router.settings.files import SMP_FILE, router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.transport.credential_files import read_credentials


def _database(options: argparse.Namespace, settings: SmpSettings) -> StorePlace:
    url = options.database or settings.database_url
    if url is None:
        raise ConfigError("[TOCSIN] database_url is not set: set it, or name the database with --database")
    return StorePlace(settings.credentials, url, SMP_SCHEMA)


SMP: Final = RouterKind(SMP_FILE, lambda settings: read_credentials(settings.credentials), router_address)
SMP_STORE: Final = RouterStore(SMP, SmpTransfers(), _database)
