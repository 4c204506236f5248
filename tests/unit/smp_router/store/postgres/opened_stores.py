"""Opening stores on a database, ending them without grace, and comparing what they hold."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from tocsin.smp_router.store.logs.direct_log import direct_lines
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import PostgresStore, open_postgres_smp_store

NOW: Final = 1_750_000_100.0


async def opened(url: str, **options: Any) -> tuple[SmpMemoryStore, PostgresStore]:
    return await open_postgres_smp_store(url, SmpMemoryStore(), now=NOW, **options)


def cut_off(database: PostgresStore) -> None:
    """As if the router had been killed: the connection is gone, nothing more is written."""
    session = database._journal._session
    assert session._connection is not None
    session._connection.terminate()


def contents(store: SmpMemoryStore) -> dict[str, Any]:
    store.check_indices()
    return {
        "queues": {queue.recipient_id: queue for queue in store.queues()},
        "services": {service.service_id: service for service in store.services()},
        "messages": {q: store.messages(q) for q in store.queues_with_messages()},
        "notifications": {n: store.notifications(n) for n in store.notifiers_with_notifications()},
        "direct": sorted(direct_lines(store.direct)),
    }


async def stored(url: str) -> dict[str, Any]:
    """What the next router would find."""
    store, database = await opened(url)
    found = contents(store)
    assert database.report.skipped == 0
    await database.close()
    return found


async def end_connections(url: str) -> int:
    """Ends all connections of others to the database; says how many there were."""
    connection = await asyncpg.connect(url)
    try:
        ended = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(ended)
    finally:
        await connection.close()
