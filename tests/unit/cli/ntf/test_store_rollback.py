"""`tocsin ntf store rollback`: what it undoes, and what it refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.ntf_router.store.samples import filled, queue
from tocsin.cli.main import run
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.schema import _OWN_MIGRATIONS


async def test_the_tables_go_back_unless_a_router_uses_them(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ntf-server.ini"
    path.write_text(
        f"[STORE_LOG]\nenable: off\ndb_connection: {url}\n[TOCSIN]\nstore: url\nstore_path: var\n"
    )

    async def command(*arguments: str) -> int:
        where = ["ntf", "store", "rollback", "--config", str(path)]
        return await asyncio.to_thread(run, [*where, *arguments])

    store = await open_ntf_postgres_store(url, pool_size=1, alone=True)
    owner = await filled(store, "a", "q")
    await store.associate(owner.token_id, queue("d"), 17)
    assert await command("--to", "0002") == 1
    assert "a router uses the schema ntf_server (tocsin ntf, host" in capsys.readouterr().err
    await store.close()
    assert await command("--to", "0002", "--dry-run") == 0
    undone = ", ".join(name for name, *_ in reversed(_OWN_MIGRATIONS[2:])) + "\n"
    assert f"Would undo: {undone}" in capsys.readouterr().out
    assert await command("--to", "0002") == 0
    assert f"Undone: {undone}" in capsys.readouterr().out
    assert await command("--to", "0001") == 1
    assert "0001 has no place for 1 subscriptions without a key" in capsys.readouterr().err
    assert await command("--to", "0001", "--lose-data") == 0
    store = await open_ntf_postgres_store(url, pool_size=1)
    assert await store.subscription_of(queue("q")) is not None
    assert await store.subscription_of(queue("d")) is None
    await store.close()
