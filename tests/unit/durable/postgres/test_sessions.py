"""Work on a connection that is made anew whenever it breaks."""

from __future__ import annotations

import logging

import asyncpg
import pytest

from tocsin.durable.postgres.leases import lease_connection
from tocsin.durable.postgres.sessions import Connect, in_sessions
from tocsin.errors import StoreError


@pytest.fixture
def connect(url: str) -> Connect:
    return lease_connection(url, "test", "public", 5.0)


async def test_whatever_ends_a_session_the_next_one_has_another_connection(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Also a defect: before, notices ended with the first one for good."""
    seen: list[int] = []

    async def session(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        seen.append(await connection.fetchval("SELECT pg_backend_pid()"))
        match len(seen):
            case 1:
                await connection.execute("SELECT no_such_function()")
            case 2:
                raise StoreError("the disk is full")
            case 3:
                raise KeyError("a defect")

    with caplog.at_level(logging.WARNING):
        await in_sessions(connect, session, "it cannot be done", 0.01)
    assert len(set(seen)) == 4
    texts = [record.getMessage() for record in caplog.records]
    assert texts[1:] == [
        "it cannot be done at the moment: the disk is full",
        "it cannot be done because of a defect",
    ]
    assert texts[0].startswith("it cannot be done at the moment: PostgreSQL refused a statement")


async def test_an_unwanted_session_is_not_repeated(connect: Connect) -> None:
    count = 0

    async def session(_connection: asyncpg.Connection[asyncpg.Record]) -> None:
        nonlocal count
        count += 1
        raise StoreError("away")

    await in_sessions(connect, session, "it cannot be done", 0.01, lambda: count == 2)
    assert count == 2
