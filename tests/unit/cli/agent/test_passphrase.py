"""`tocsin agent passphrase`: what it sets, changes and removes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands
from tocsin.agent.store.records import AgentConnection
from tocsin.agent.store.sqlite.store import opened_agent_store


@pytest.fixture
async def alice(tmp_path: Path) -> AgentCommands:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    async with opened_agent_store(alice.folder / "agent.db") as store:
        await store.add_connection(AgentConnection("a"), None, None)
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"{name} passphrase\n")
    (tmp_path / "empty").write_text("")
    return alice


async def test_passphrase_is_set_changed_and_removed(alice: AgentCommands, tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")

    async def change(*words: str) -> tuple[bool, bool, bool]:
        said = await alice.ok("passphrase", *words)
        return said["was_encrypted"], said["encrypted"], said["changed"]

    assert await change("--new-passphrase-file", old, "--dry-run") == (False, True, False)
    assert await change("--new-passphrase-file", old) == (False, True, True)
    assert "a passphrase is needed" in (await alice("status")).error
    assert await change("--passphrase-file", old, "--new-passphrase-file", new) == (True, True, True)
    assert "is wrong" in (await alice("status", "--passphrase-file", old)).error
    [connection] = (await alice.ok("status", "--passphrase-file", new))["connections"]
    assert connection["connection"] == "a"
    assert await change("--passphrase-file", new, "--remove") == (True, False, True)
    assert (await alice.ok("status"))["connections"] == [connection]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--new-passphrase-file", "empty"), "--new-passphrase-file"),
        (("--new-passphrase-file", "missing"), "cannot be read"),
        (("--passphrase-file", "old", "--remove"), "is not encrypted"),
    ],
)
async def test_what_cannot_be_done_changes_nothing(
    alice: AgentCommands, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    refused = await alice(
        "passphrase", *(word if word.startswith("--") else str(tmp_path / word) for word in words)
    )
    assert refused.code == 1
    assert sentence in refused.error
    await alice.ok("status")


async def test_people_are_told_what_was_done(alice: AgentCommands, tmp_path: Path) -> None:
    said = await alice("passphrase", "--new-passphrase-file", str(tmp_path / "new"))
    assert "Every command now needs the passphrase" in said.out
    assert "new passphrase" not in said.out
