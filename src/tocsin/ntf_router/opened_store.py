"""Opens the store that an NTF router's settings name: memory with or without a log, an embedded PostgreSQL, or the
operator's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tocsin.durable.log_files import FolderLock
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.errors import ConfigError, StoreError
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind, check_fleet
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.log_reading import LOCK, STORE_LOG
from tocsin.ntf_router.store.logs.store_files import NtfFolderStore, NtfOpenOptions, open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore

EMBEDDED_FOLDER: Final = "postgres"

logger = logging.getLogger(__name__)


@asynccontextmanager
async def opened_store(
    settings: NtfSettings, *, skip_broken_lines: bool = False, serving: bool = False
) -> AsyncIterator[NtfStore]:
    """Migrations are done when it is open. It is closed at the end. Raises StoreError.

    A router is `serving`, and then has a database for itself. Tools may use a database while a router serves.
    """
    check_fleet(settings)
    async with AsyncExitStack() as stack:
        store: NtfStore
        match settings.store_kind:
            case StoreKind.MEMORY if settings.store is None or not settings.store_log:
                store = NtfMemoryStore()
            case StoreKind.MEMORY:
                store = await asyncio.to_thread(_open_folder, data_folder(settings), skip_broken_lines)
            case StoreKind.EMBEDDED:
                stack.callback((await asyncio.to_thread(_lock, data_folder(settings))).release)
                url = await stack.enter_async_context(
                    embedded_database(data_folder(settings) / EMBEDDED_FOLDER)
                )
                store = await _opened_database(url, settings, serving=serving)
            case StoreKind.URL:
                assert settings.database_url is not None
                store = await _opened_database(settings.database_url, settings, serving=serving)
        stack.push_async_callback(store.close)
        yield store


def _lock(folder: Path) -> FolderLock:
    """Lock the folder for one router. Raises StoreError if another uses it."""
    _make(folder)
    return FolderLock(folder / LOCK)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be created: {error.strerror}. Create it for the router's user"
        ) from error


def _open_folder(folder: Path, skip_broken_lines: bool) -> NtfFolderStore:
    _make(folder)
    store = open_ntf_store(folder, NtfOpenOptions(skip_broken_lines=skip_broken_lines))
    found = store.report
    logger.info(
        "store opened: %d tokens, %d subscriptions, %d notifications, %d of them not pushed yet",
        found.tokens,
        found.subscriptions,
        found.notifications,
        found.pending,
    )
    return store


async def _opened_database(url: str, settings: NtfSettings, *, serving: bool) -> NtfStore:
    try:
        from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store  # needs asyncpg
    except ImportError as error:
        raise StoreError("PostgreSQL needs another package: pip install 'tocsin[postgres]'") from error
    return await open_ntf_postgres_store(
        url,
        settings.database_schema,
        settings.database_pool,
        alone=serving,
        lease_seconds=settings.fleet_lease if settings.fleet else None,
    )


def store_lines(settings: NtfSettings) -> list[str]:
    """Lines that tell the operator where the store is, without a password."""
    lines = []
    match settings.store_kind:
        case StoreKind.URL:
            lines.append(
                f"PostgreSQL database: {_shown(settings.database_url)}, schema: {settings.database_schema}"
            )
        case StoreKind.EMBEDDED:
            folder = data_folder(settings) / EMBEDDED_FOLDER
            lines.append(f"PostgreSQL database: embedded in {folder}, schema: {settings.database_schema}")
        case StoreKind.MEMORY:
            pass
    if settings.store_kind is StoreKind.MEMORY and settings.store_log and settings.store is not None:
        lines.append(f"Store log: {settings.store / STORE_LOG}")
    else:
        lines.append("Store log disabled.")
    return lines


def data_folder(settings: NtfSettings) -> Path:
    if settings.store is None:
        raise ConfigError("[TOCSIN] store_path is off, but the store needs a folder: set store_path")
    return settings.store


def _shown(url: str | None) -> str:
    parts = urlsplit(url or "")
    login, _, hosts = parts.netloc.rpartition("@")  # several hosts have several ports
    user = login.partition(":")[0]
    return f"{parts.scheme}://{f'{user}@' if user else ''}{hosts}{parts.path}"
