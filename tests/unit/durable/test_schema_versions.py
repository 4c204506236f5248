"""Forward and back between all versions of each store's tables, on filled stores, with the rows compared.

A way back either loses nothing, so that the next way forward brings every row back, or it is refused and changes
nothing, or somebody has accepted the loss.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import asyncpg
import pytest

from tests.doubles import agent_samples as agent
from tests.doubles.postgres_server import name_of, new_database
from tests.unit.ntf_router.store import samples as ntf
from tests.unit.smp_router.store import samples as smp
from tests.unit.smp_router.store.postgres.opened_stores import opened
from tocsin.agent.store.records import AgentConnection, CheckDue, KeptMessage, NextAction
from tocsin.agent.store.sqlite import migrations as agent_schema
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.durable.schema_versions import to_undo
from tocsin.errors import StoreError
from tocsin.ntf_router.store.postgres import schema as ntf_schema
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.transfer import roll_back_ntf_database
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord
from tocsin.smp_router.store.postgres import schema_migrations as smp_schema
from tocsin.smp_router.store.postgres.transfer import roll_back_database

Contents: TypeAlias = dict[str, Any]
"""Rows and columns of each table, and the indices."""
SMP_VERSIONS: Final = [each.name for each in smp_schema.migrations()]
NTF_VERSIONS: Final = [name for name, *_ in (*ntf_schema._MIGRATIONS, *ntf_schema._OWN_MIGRATIONS)]
AGENT_VERSIONS: Final = [step.name for step in agent_schema.MIGRATIONS]
TIMES: Final = ("applied_at", "ts")
"""When a migration was applied."""
COUNTERS: Final = ("opening", "owner_heartbeat", "fleet_instances", "fleet_leases", "fleet_unable")
"""Tables that say which router wrote last or serves now, and hold nothing of its users."""


class VersionedStore(Protocol):
    """A store whose tables can be at any version."""

    async def fill(self) -> None:
        """With the newest version: something in every table and column."""

    async def contents(self) -> Contents: ...
    async def up(self, version: str) -> None: ...
    async def down(self, version: str, *, lose_data: bool = False, dry_run: bool = False) -> list[str]: ...


class _Database:
    """In PostgreSQL, in one schema or several."""

    def __init__(self, url: str, schemas: list[str]) -> None:
        self.url, self._schemas = url, schemas

    async def contents(self) -> Contents:
        connection = await asyncpg.connect(self.url)
        try:
            found: Contents = {}
            for table in await connection.fetch(
                "SELECT table_schema AS s, table_name AS t FROM information_schema.tables"
                " WHERE table_schema = ANY($1)",
                self._schemas,
            ):
                name = f'"{table["s"]}".{table["t"]}'
                columns = await connection.fetch(
                    "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns"
                    " WHERE table_schema = $1 AND table_name = $2 ORDER BY column_name",
                    *table,
                )
                rows = [] if table["t"] in COUNTERS else await connection.fetch(f"SELECT * FROM {name}")  # noqa: S608
                found[name] = (
                    [tuple(column) for column in columns],
                    sorted(
                        sorted((key, repr(value)) for key, value in row.items() if key not in TIMES)
                        for row in rows
                    ),
                )
            found["indices"] = sorted(
                map(
                    tuple,
                    await connection.fetch(
                        "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = ANY($1)",
                        self._schemas,
                    ),
                )
            )
            return found
        finally:
            await connection.close()


class _SmpTables(_Database):
    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        super().__init__(url, ["tocsin_smp"])
        self._known, self._patch = smp_schema.migrations(), patch

    async def fill(self) -> None:
        store, database = await opened(self.url)
        queue = replace(smp.a_queue(), notifier=smp.a_notifier(), link=smp.a_link())
        assert queue.notifier is not None
        store.add_service(smp.a_service())
        store.add_queue(queue)
        for priority in range(4):
            store.write_message(queue.recipient_id, smp.a_message(priority=priority), 10)
        store.add_notification(queue.notifier.notifier_id, smp.a_notification())
        router = NtfRouterRecord(smp.some_bytes(24), smp.a_location(), smp.some_bytes(44), 17)
        store.direct.set_ntf_router(router)
        store.direct.set_minimum_priority(queue.notifier.notifier_id, list(MinimumPriority)[-1])
        store.direct.add_packet(smp.a_packet(router.location, queue.notifier.notifier_id))
        await database.close()

    async def up(self, version: str) -> None:
        known = self._known[: SMP_VERSIONS.index(version) + 1]
        self._patch.setattr(smp_schema, "migrations", lambda: known)
        connection = await asyncpg.connect(self.url)
        await smp_schema.migrate(connection)
        await connection.close()
        self._patch.setattr(smp_schema, "migrations", lambda: self._known)

    async def down(self, version: str, *, lose_data: bool = False, dry_run: bool = False) -> list[str]:
        undone, _ = await roll_back_database(self.url, version, lose_data=lose_data, dry_run=dry_run)
        return undone


class _NtfTables(_Database):
    def __init__(self, url: str) -> None:
        super().__init__(url, ["ntf_server", "ntf_server_tocsin"])

    async def fill(self) -> None:
        store = await open_ntf_postgres_store(self.url, pool_size=2)
        owner = await ntf.filled(store, "a", "q", "r")
        await store.associate(owner.token_id, ntf.queue("d"), 17)
        await store.associate(owner.token_id, ntf.queue("e"), 17)
        await store.dissociate(owner.token_id, ntf.queue("e"), 1_900_000_000)
        await store.note_deleted(ntf.ROUTER, [ntf.queue("d").notifier_id], 18)
        await store.set_direct_keys(b"keys", None)
        await store.subscribed(ntf.ROUTER, [ntf.queue("q").notifier_id], b"s" * 24)
        await store.set_service_credentials(ntf.ROUTER, new_service_credentials(datetime.now(UTC)))
        await store.add_notifications(ntf.ROUTER, [ntf.received("q", 1), ntf.received("r", 2)])
        await store.settle([ntf.settled(owner, "r", 2)])
        await store.close()

    async def up(self, version: str) -> None:
        first = len(ntf_schema._MIGRATIONS)
        place = NTF_VERSIONS.index(version) + 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ntf_schema, "_MIGRATIONS", ntf_schema._MIGRATIONS[:place])
            patch.setattr(ntf_schema, "_OWN_MIGRATIONS", ntf_schema._OWN_MIGRATIONS[: max(0, place - first)])
            connection = await asyncpg.connect(self.url)
            await ntf_schema.migrate(connection, "ntf_server")
            await connection.close()

    async def down(self, version: str, *, lose_data: bool = False, dry_run: bool = False) -> list[str]:
        undone, _ = await roll_back_ntf_database(
            self.url, "ntf_server", version, lose_data=lose_data, dry_run=dry_run
        )
        return undone


class _AgentFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def fill(self) -> None:
        async with opened_agent_store(self._path) as store:
            for name in "abc":
                queue = agent.receive_queue(name, notifier=agent.NOTIFIER if name == "a" else None)
                await store.add_connection(AgentConnection(name), queue, agent.send_queue(name))
            await store.keep_message(KeptMessage("a", 1, b"id", 7, b"body of a message", priority=2))
            await store.message_received("a", 1, 7, b"id")
            key = NtfKeyOffer(X25519PrivateKey(b"k" * 32).public, 1_900_000_000)
            await store.save_token(agent.agent_token(action=CheckDue()))
            await store.remove_token(delete_at_router=True, now=1)
            await store.save_token(agent.agent_token(ntf_key=key))
            await store.put_subscriptions(
                [agent.subscription("a"), agent.subscription("b", action=NextAction.ASK_FATE)]
            )
            await store.keep_endpoint_secret(agent.ENDPOINT, most=4)
            await store.leave_connection("c")
            await store.set_notifications("a", enabled=True, minimum=list(MinimumPriority)[-1])

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as database:
            database.execute("PRAGMA foreign_keys = ON")
            yield database

    async def contents(self) -> Contents:
        async with self._opened() as database:
            database.row_factory = sqlite3.Row
            found: Contents = {}
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (name,) in names:
                if name == "sqlite_sequence":
                    continue
                columns = database.execute(f"PRAGMA table_xinfo({name})").fetchall()
                rows = database.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608
                found[name] = (
                    sorted(tuple(column)[1:] for column in columns),
                    sorted(
                        sorted((key, repr(row[key])) for key in row.keys() if key not in TIMES)  # noqa: SIM118
                        for row in rows
                    ),
                )
            found["indices"] = sorted(
                (name, " ".join(sql.split()))
                for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'")
                if sql
            )
            return found

    async def up(self, version: str) -> None:
        async with self._opened() as database:
            agent_schema.migrate(database, agent_schema.MIGRATIONS[: AGENT_VERSIONS.index(version) + 1])

    async def down(self, version: str, *, lose_data: bool = False, dry_run: bool = False) -> list[str]:
        async with self._opened() as database:
            undone, _ = agent_schema.roll_back(database, version, lose_data=lose_data, dry_run=dry_run)
            return undone


async def there_and_back(store: VersionedStore, older: str, newer: str, newest: str) -> None:
    """Of a filled store that is at `newer`."""
    at_newer = await store.contents()
    undone, refusal = await attempt(store, older)
    if refusal:
        assert "has no place for" in refusal
        assert "--lose-data" in refusal
        assert "\n" not in refusal
        assert await store.contents() == at_newer
        undone = await store.down(older, lose_data=True, dry_run=True)
        assert await store.contents() == at_newer
        assert await store.down(older, lose_data=True) == undone
    else:
        await store.up(newer)
        assert await store.contents() == at_newer
        assert await store.down(older) == undone
    at_older = await store.contents()
    await store.up(newer)
    assert await store.down(older) == undone
    assert await store.contents() == at_older
    await store.up(newest)
    assert await store.down(newest) == []


async def attempt(store: VersionedStore, older: str) -> tuple[list[str], str]:
    """What was undone without a loss, or the refusal."""
    try:
        return await store.down(older), ""
    except StoreError as refused:
        return [], str(refused)


def without_indices(contents: Contents) -> Contents:
    return {name: each for name, each in contents.items() if name != "indices"}


def newer_ones(versions: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("newer", versions[1:], ids=lambda name: name.partition("_")[0])


@newer_ones(SMP_VERSIONS)
async def test_an_smp_database_goes_forward_and_back(
    server_url: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_database(server_url) as whole:
        store = _SmpTables(whole, monkeypatch)
        await store.fill()
        await store.down(newer, lose_data=True)
        for older in SMP_VERSIONS[: SMP_VERSIONS.index(newer)]:
            async with new_database(server_url, name_of(whole)) as url:
                await there_and_back(_SmpTables(url, monkeypatch), older, newer, SMP_VERSIONS[-1])
                memory, database = await opened(url)
                assert len(list(memory.queues())) == 1
                await database.close()


@newer_ones(NTF_VERSIONS)
async def test_an_ntf_database_goes_forward_and_back(server_url: str, newer: str) -> None:
    async with new_database(server_url) as whole:
        store = _NtfTables(whole)
        await store.fill()
        await store.down(newer, lose_data=True)
        for older in NTF_VERSIONS[: NTF_VERSIONS.index(newer)]:
            async with new_database(server_url, name_of(whole)) as url:
                await there_and_back(_NtfTables(url), older, newer, NTF_VERSIONS[-1])
                again = await open_ntf_postgres_store(url, pool_size=1)
                assert await again.token(ntf.token("a").token_id) is not None
                assert await again.subscription_of(ntf.queue("q")) is not None
                await again.close()


@newer_ones(AGENT_VERSIONS)
async def test_an_agents_file_goes_forward_and_back(tmp_path: Path, newer: str) -> None:
    whole = tmp_path / "whole.db"
    store = _AgentFile(whole)
    await store.fill()
    await store.down(newer, lose_data=True)
    for older in AGENT_VERSIONS[: AGENT_VERSIONS.index(newer)]:
        path = tmp_path / f"{older}.db"
        shutil.copyfile(whole, path)
        await there_and_back(_AgentFile(path), older, newer, AGENT_VERSIONS[-1])
        async with opened_agent_store(path) as again:
            assert "a" in {each.connection_id for each in await again.connections()}


async def test_the_filled_stores_have_something_in_every_table(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_database(server_url) as first, new_database(server_url) as second:
        for store in (
            _SmpTables(first, monkeypatch),
            _NtfTables(second),
            _AgentFile(tmp_path / "agent.db"),
        ):
            await store.fill()
            contents = without_indices(await store.contents())
            empty = {name for name, (_, rows) in contents.items() if not rows}
            assert {name.rpartition(".")[2] for name in empty} <= {*COUNTERS, "passphrase", "migrations"}


def test_a_version_is_named_by_its_number_or_its_name() -> None:
    names = ["0001_first", "0002_second", "0003_third"]
    assert to_undo(names, "0001") == ["0003_third", "0002_second"]
    assert to_undo(names, "0003_third") == []
    for wrong in ("", "0004", "first"):
        with pytest.raises(StoreError, match="name one of 0001_first, 0002_second, 0003_third"):
            to_undo(names, wrong)
    with pytest.raises(StoreError, match="there is no store yet"):
        to_undo([], "0001")
