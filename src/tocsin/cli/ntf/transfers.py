"""What `tocsin ntf store import` and `export` share: where from and where to."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tocsin.cli.ntf.files import add_config_argument, settings_of
from tocsin.cli.routers.store_transfers import add_ends_arguments
from tocsin.durable.log_files import FolderLock
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.errors import ConfigError
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER, data_folder
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.log_reading import LOCK


class NtfEnds(NamedTuple):
    folder: Path
    schema: str
    url: str | None
    embedded_in: Path | None
    """The data folder of a router with a PostgreSQL of its own, if that is meant."""

    @classmethod
    def of(cls, settings: NtfSettings) -> NtfEnds:
        """Of a router whose store is in a database. Raises ConfigError."""
        folder = data_folder(settings)
        embedded = folder if settings.store_kind is StoreKind.EMBEDDED else None
        return cls(folder, settings.database_schema, settings.database_url, embedded)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Its URL. Raises StoreError if a router uses the embedded one."""
        if self.embedded_in is None:
            assert self.url is not None
            yield self.url
            return
        lock = FolderLock(self.embedded_in / LOCK)
        try:
            async with embedded_database(self.embedded_in / EMBEDDED_FOLDER) as url:
                yield url
        finally:
            lock.release()


def add_transfer_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    add_ends_arguments(parser)
    parser.add_argument("--schema", help="of the database (default: db_schema of the settings)")


def ends_of(options: argparse.Namespace) -> NtfEnds:
    """Raises ConfigError if one of both is not known."""
    settings = settings_of(options)
    folder, url = options.folder or settings.store, options.database or settings.database_url
    if folder is None:
        raise ConfigError("there is no store_path: say --folder")
    embedded = options.database is None and settings.store_kind is StoreKind.EMBEDDED
    if url is None and not embedded:
        raise ConfigError("[STORE_LOG] db_connection is not set: say --database")
    schema = options.schema or settings.database_schema
    return NtfEnds(folder, schema, url, data_folder(settings) if embedded else None)
