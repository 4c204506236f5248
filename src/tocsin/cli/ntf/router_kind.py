"""The NTF router as the shared commands see it."""

from __future__ import annotations

import argparse
from typing import Final

from tocsin.cli.routers.router_kind import RouterKind
from tocsin.cli.routers.store_transfers import RouterStore
from tocsin.errors import ConfigError
from tocsin.migrate.ntf_stores import NtfTransfers
from tocsin.migrate.stores import StorePlace
from tocsin.ntf_router.opened_store import data_folder
from tocsin.ntf_router.settings.files import NTF_FILE, credentials_of, router_address
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind


def _database(options: argparse.Namespace, settings: NtfSettings) -> StorePlace:
    schema = options.schema or settings.database_schema
    url = options.database or settings.database_url
    if options.database is None and settings.store_kind is StoreKind.EMBEDDED:
        return StorePlace(data_folder(settings), None, schema, embedded=True)
    if url is None:
        raise ConfigError(
            "[STORE_LOG] db_connection is not set: set it, or name the database with --database"
        )
    return StorePlace(settings.credentials, url, schema)


NTF: Final = RouterKind(NTF_FILE, credentials_of, router_address)
NTF_STORE: Final = RouterStore(NTF, NtfTransfers(), _database)


def add_schema_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema", metavar="NAME", help="schema of the database tables (default: db_schema of the settings)"
    )
