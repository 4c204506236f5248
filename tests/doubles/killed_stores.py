"""A copy of what kill -9 of a router would leave of its store at this moment; the router runs on."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.doubles.postgres_server import name_of, new_database
from tests.unit.smp_router.store.postgres.test_journal import without_database


@contextmanager
def killed_folder(folder: Path) -> Iterator[Path]:
    with TemporaryDirectory(prefix="tocsin-killed-") as name:
        yield Path(shutil.copytree(folder, Path(name) / "store"))


@asynccontextmanager
async def killed_database(server_url: str, url: str) -> AsyncIterator[str]:
    """All its connections end first, as with a router that is killed."""
    async with AsyncExitStack() as stack:
        async with without_database(server_url, url):
            copy = await stack.enter_async_context(new_database(server_url, name_of(url)))
        yield copy
