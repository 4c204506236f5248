"""A damaged or unusable file gives a StoreError that names file, reason and next step; never another error."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.doubles.agent_samples import (
    ENDPOINT,
    NOTIFIER,
    agent_token,
    receive_queue,
    send_queue,
    subscription,
)
from tests.doubles.file_permissions import modes_apply
from tests.unit.agent.store.test_interface import WEAK
from tocsin.agent.store.records import AgentConnection, KeptMessage
from tocsin.agent.store.sqlite.store import AgentSqliteStore, opened_agent_store
from tocsin.errors import StoreError

CONNECTIONS = 30
PASSPHRASE = "correct horse"


async def filled(path: Path, passphrase: str | None = None) -> None:
    async with opened_agent_store(path, passphrase=passphrase, scrypt_n=WEAK) as store:
        for number in range(CONNECTIONS):
            name = f"connection{number}"
            queue = receive_queue(
                name,
                notifier=NOTIFIER if number == 0 else None,
                recipient_id=bytes([number]) * 24,
            )
            await store.add_connection(AgentConnection(name), queue, send_queue(name))
            await store.put_subscriptions([subscription(name)])
            await store.keep_message(KeptMessage(name, 1, b"id%d" % number, 7, b"body" * 50))
        await store.save_token(agent_token())
        await store.keep_endpoint_secret(ENDPOINT, most=4)


async def used(path: Path, passphrase: str | None = None) -> None:
    """Open the file, read everything, and change something."""
    async with opened_agent_store(path, passphrase=passphrase, scrypt_n=WEAK) as store:
        for read in READS:
            await read(store)
        await store.add_connection(AgentConnection("another"), receive_queue("another"), None)
        await store.delete_connection("connection1")


READS: list[Callable[[AgentSqliteStore], Awaitable[object]]] = [
    lambda store: store.connections(),
    lambda store: store.unfinished_connections(),
    lambda store: store.receive_queues("connection0"),
    lambda store: store.primary_queues([f"connection{number}" for number in range(CONNECTIONS)]),
    lambda store: store.send_queues("connection2"),
    lambda store: store.kept_messages(),
    lambda store: store.token(),
    lambda store: store.endpoint_secrets(),
    lambda store: store.subscriptions(),
    lambda store: store.routers_with_actions(at_smp_router=True),
    lambda store: store.tokens_to_delete(),
]


async def fails_as_it_should(path: Path, passphrase: str | None = None) -> str | None:
    """Return the text of the error, or None without an error."""
    failure: StoreError | None = None
    try:
        await used(path, passphrase)
    except StoreError as error:
        failure = error
    if failure is None:
        return None
    assert str(path) in str(failure)
    assert failure.__cause__ is None
    assert failure.__context__ is None
    return str(failure)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "encrypted"])
async def test_flipped_bytes_never_give_another_error(tmp_path: Path, passphrase: str | None) -> None:
    original, path = tmp_path / "original.db", tmp_path / "agent.db"
    await filled(original, passphrase)
    data = original.read_bytes()
    chance = random.Random(17)
    texts = set()
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 4, 64))):
            damaged[chance.randrange(len(data))] = chance.randrange(256)
        _put(path, bytes(damaged))
        texts.add(await fails_as_it_should(path, passphrase))
    assert any(text is not None and "damaged" in text for text in texts)


async def test_damaged_header_or_schema_never_gives_another_error(tmp_path: Path) -> None:
    """The first page says how to read all others, and holds the tables."""
    original, path = tmp_path / "original.db", tmp_path / "agent.db"
    await filled(original)
    data = original.read_bytes()
    chance = random.Random(18)
    for place in [*range(100), *(chance.randrange(100, 4096) for _ in range(100))]:
        damaged = bytearray(data)
        damaged[place] ^= chance.randrange(1, 256)
        _put(path, bytes(damaged))
        await fails_as_it_should(path)


async def test_shortened_file_never_gives_another_error(tmp_path: Path) -> None:
    original, path = tmp_path / "original.db", tmp_path / "agent.db"
    await filled(original)
    data = original.read_bytes()
    for size in [*range(1, 200, 23), *range(200, len(data), len(data) // 40)]:
        _put(path, data[:size])
        assert await fails_as_it_should(path) is not None, size


async def test_values_of_the_wrong_kind_never_give_another_error(tmp_path: Path) -> None:
    """Every column of every table in turn."""
    original, path = tmp_path / "original.db", tmp_path / "agent.db"
    await filled(original)
    with closing(sqlite3.connect(original)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [
            (table, column, kind)
            for table in tables
            for _, column, kind, *_ in database.execute(f"PRAGMA table_info({table})")
        ]
    wrong: dict[str, list[object]] = {
        "TEXT": ["", "x", "\x00", "é" * 300],
        "BLOB": [b"", b"\xff", os.urandom(300)],
        "INTEGER": [-1, 0, 2**62, -(2**63)],
    }
    for table, column, kind in columns:
        for value in wrong.get(kind, []):
            shutil.copy(original, path)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            with closing(sqlite3.connect(path)) as database, suppress(sqlite3.IntegrityError):
                database.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (value,))  # noqa: S608
                database.commit()
            await fails_as_it_should(path)


def _set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def _put(path: Path, data: bytes) -> None:
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"certainly no database, and long enough for a header" * 40, "not an agent's store"),
        (b"\x00" * 8192, "not an agent's store"),
        (b"SQLite format 3\x00" + b"\xff" * 8192, "not an agent's store"),
    ],
    ids=["text", "zeros", "header only"],
)
async def test_other_files_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "agent.db"
    _put(path, content)
    text = await fails_as_it_should(path)
    assert text is not None
    assert says in text
    assert "another path" in text


async def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE connections (something TEXT)")
        database.commit()
    before = path.read_bytes()
    text = await fails_as_it_should(path)
    assert text is not None
    assert "not an agent's store" in text
    assert path.read_bytes()[100:] == before[100:], "a file of somebody else must not be changed"


async def test_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    path.mkdir()
    assert await fails_as_it_should(path) is not None


async def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await filled(path)
    _set_mode(tmp_path, 0o500)
    try:
        with modes_apply():
            text = await fails_as_it_should(path)
    finally:
        _set_mode(tmp_path, 0o700)
    assert text is not None


async def test_file_in_use_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with opened_agent_store(path):
        text = await fails_as_it_should(path)
    assert text is not None
    assert "in use by another agent" in text


async def test_file_of_a_newer_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO migrations (name) VALUES ('9999_later')")
        database.commit()
    text = await fails_as_it_should(path)
    assert text is not None
    assert "newer version of Tocsin" in text
    assert "update" in text
