"""`tocsin agent rollback`: what it undoes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.agent_commands import AgentCommands
from tests.doubles.agent_samples import ENDPOINT
from tocsin.agent.store.records import AgentConnection
from tocsin.agent.store.sqlite.migrations import MIGRATIONS
from tocsin.agent.store.sqlite.store import opened_agent_store


async def test_the_store_goes_back_and_forward(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    path = alice.folder / "agent.db"
    async with opened_agent_store(path) as store:
        await store.add_connection(AgentConnection("a"), None, None)
    undone = {"undone": [step.name for step in reversed(MIGRATIONS[7:])], "lost": []}
    assert await alice.ok("rollback", "--to", "0007", "--dry-run") == {**undone, "changed": False}
    assert await alice.ok("rollback", "--to", "0007") == {**undone, "changed": True}
    async with opened_agent_store(path) as store:
        assert await store.connections() == [AgentConnection("a")]
        await store.keep_endpoint_secret(ENDPOINT, most=4)
    refused = await alice("rollback", "--to", "0007")
    assert refused.code == 1
    assert "0007 has no place for 1 secrets of Web Push endpoints: make a backup" in refused.error
    async with opened_agent_store(path) as store:
        assert await store.endpoint_secrets() == [ENDPOINT]
    lost = await alice.ok("rollback", "--to", "0007", "--lose-data")
    assert lost["lost"] == ["1 secrets of Web Push endpoints"]
    assert "name one of 0001_connections" in (await alice("rollback", "--to", "7")).error
