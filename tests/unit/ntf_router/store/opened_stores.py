"""Each kind of NTF store, for tests that all of them must pass."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import asyncpg
import pytest

from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import NtfFolderStore, open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store
from tocsin.ntf_router.store.records import RowLimits, SettledNotification

KINDS: Final = ("memory", "killed", "stopped", "postgres")
_NUMBERS: Final = itertools.count()
_READS: Final = frozenset(
    {
        "token",
        "registration",
        "subscription",
        "subscription_of",
        "other_routers_of",
        "used_router",
        "service_credentials",
        "used_routers",
        "wanted_routers",
        "associations",
        "recently_active",
        "queue_facts",
        "due_pushes",
        "tokens_with_pending",
        "accounting",
        "counts",
        "cron_due",
        # What these two change is not worth a line: nobody is subscribed after a restart.
        "queues_to_subscribe",
        "disconnected",
    }
)


def abandon(store: NtfFolderStore) -> None:
    """As a killed process leaves it: nothing is written any more, and the system gives up the lock."""
    store._journal.close()
    store._lock.release()


class Reopened:
    """A store in a folder that is killed, or stopped, and opened again after every change."""

    def __init__(self, folder: Path, *, killed: bool) -> None:
        self._folder = folder
        self._killed = killed
        self._report: Callable[[Sequence[SettledNotification]], None] | None = None
        self._limits: RowLimits | None = None
        self.store = open_ntf_store(folder)

    def report_settled_to(
        self, report: Callable[[Sequence[SettledNotification]], None], *, logged: bool = True
    ) -> None:
        self._report = report
        self.store.report_settled_to(report)

    async def limit_to(self, limits: RowLimits) -> None:
        self._limits = limits
        await self.store.limit_to(limits)

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self.store, name)
        return method if name in _READS else self._and_reopen(method)

    def _and_reopen(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **named: Any) -> Any:
            result = await method(*arguments, **named)
            await self.leave()
            self.store = open_ntf_store(self._folder)
            if self._report is not None:
                self.store.report_settled_to(self._report)
            if self._limits is not None:
                await self.store.limit_to(self._limits)
            return result

        return called

    async def leave(self) -> None:
        if self._killed:
            abandon(self.store)
        else:
            await self.store.close()


@asynccontextmanager
async def postgres_store(server_url: str, pool_size: int = 3) -> AsyncIterator[NtfPostgresStore]:
    """In a schema of its own."""
    schema = f"ntf_{next(_NUMBERS)}"
    store = await open_ntf_postgres_store(server_url, schema, pool_size)
    try:
        yield store
    finally:
        await store.close()
        connection = await asyncpg.connect(server_url)
        await connection.execute(f"DROP SCHEMA {schema}_tocsin CASCADE; DROP SCHEMA {schema} CASCADE")
        await connection.close()


@asynccontextmanager
async def opened_store(request: pytest.FixtureRequest) -> AsyncIterator[NtfStore]:
    if request.param == "memory":
        yield NtfMemoryStore()
    elif request.param == "postgres":
        async with postgres_store(request.getfixturevalue("server_url")) as store:
            yield store
    else:
        folder = request.getfixturevalue("tmp_path")
        reopened = Reopened(folder, killed=request.param == "killed")
        yield cast(NtfStore, reopened)
        await reopened.leave()
