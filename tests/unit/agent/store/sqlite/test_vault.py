"""Setting, changing and removing the passphrase of an agent's file, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.agent_samples import ENDPOINT, NOTIFIER, agent_token, receive_queue, send_queue
from tests.unit.agent.store.sqlite.test_database import SECRETS
from tests.unit.agent.store.test_interface import WEAK
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import AgentConnection, KeptMessage, VerificationDue
from tocsin.agent.store.sqlite.migrations import migrate
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.agent.store.sqlite.vault import ROW_NAMES, Vault, sealed_columns
from tocsin.errors import StoreError

OLD, NEW = "correct horse", "battery staple"
CHANGES = [(None, NEW), (OLD, NEW), (OLD, None)]
NAMES = ["set", "change", "remove"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


async def fill(store: AgentStore) -> None:
    """With a value in every column that is sealed."""
    queue = receive_queue("a", notifier=NOTIFIER, peer_key=b"peer" * 8)
    await store.add_connection(AgentConnection("a"), queue, send_queue("a"))
    await store.keep_message(KeptMessage("a", 1, b"id", 7, b"body of a message"))
    await store.save_token(agent_token(action=VerificationDue(b"the code")))
    await store.remove_token(delete_at_router=True, now=1)
    await store.save_token(agent_token(action=VerificationDue(b"the code")))
    await store.keep_endpoint_secret(ENDPOINT, most=4)


async def everything(store: AgentStore) -> list[object]:
    return [
        await store.receive_queues("a"),
        await store.send_queues("a"),
        await store.token(),
        await store.tokens_to_delete(),
        await store.kept_messages(),
        await store.endpoint_secrets(),
    ]


async def opens_with(path: Path, passphrase: str | None) -> bool:
    try:
        async with opened_agent_store(path, passphrase=passphrase, scrypt_n=WEAK):
            return True
    except StoreError:
        return False


def found_in_files(path: Path) -> list[bytes]:
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    return [secret for secret in SECRETS if secret in content]


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=NAMES)
async def test_everything_is_readable_with_the_new_passphrase_alone(
    path: Path, before: str | None, after: str | None
) -> None:
    async with opened_agent_store(path, passphrase=before, scrypt_n=WEAK) as store:
        await fill(store)
        known = await everything(store)
        await store.change_passphrase(after)
        assert bool(found_in_files(path)) is (after is None), "while the store is open"
        assert await everything(store) == known
        await store.add_connection(AgentConnection("b"), receive_queue("b"), None)
    assert not await opens_with(path, before)
    assert bool(found_in_files(path)) is (after is None)
    async with opened_agent_store(path, passphrase=after, scrypt_n=WEAK) as store:
        assert await everything(store) == known
        assert await store.receive_queues("b")


async def test_what_is_asked_of_the_store_meanwhile_is_sealed_for_the_new_passphrase(path: Path) -> None:
    async with opened_agent_store(path, passphrase=OLD, scrypt_n=WEAK) as store:
        names = [f"{number}" for number in range(20)]
        changing = asyncio.create_task(store.change_passphrase(NEW))
        await asyncio.gather(
            *(store.add_connection(AgentConnection(name), receive_queue(name), None) for name in names)
        )
        await changing
    async with opened_agent_store(path, passphrase=NEW, scrypt_n=WEAK) as store:
        for name in names:
            assert await store.receive_queues(name)


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=NAMES)
async def test_failure_at_any_value_changes_nothing(
    path: Path, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_agent_store(path, passphrase=before, scrypt_n=WEAK) as store:
        await fill(store)
        known = await everything(store)
        failures = 0
        while True:
            with monkeypatch.context() as patch:
                patch.setattr(Vault, "seal", failing_seal(after_calls=failures))
                try:
                    await store.change_passphrase(after)
                    break
                except StoreError:
                    failures += 1
            assert await everything(store) == known
        assert failures >= len(SECRETS)
        assert await everything(store) == known
    assert await opens_with(path, after)


def failing_seal(after_calls: int) -> object:
    left = after_calls
    real = Vault.seal

    def seal(vault: Vault, value: bytes, place: str) -> bytes:
        nonlocal left
        if not left:
            raise sqlite3.OperationalError("disk full")
        left -= 1
        return real(vault, value, place)

    return seal


CHANGE = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from pathlib import Path
    from tocsin.agent.store.sqlite.store import opened_agent_store

    def die_at(statement):
        if statement.startswith(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)

    async def main(path, old, new):
        async with opened_agent_store(Path(path), passphrase=old, scrypt_n=2) as store:
            store.database._session.database.set_trace_callback(die_at)
            await store.change_passphrase(new)

    asyncio.run(main(sys.argv[1], sys.argv[2] or None, sys.argv[3] or None))
    """
)


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=NAMES)
async def test_killed_change_leaves_the_old_or_the_new_passphrase(
    path: Path, before: str | None, after: str | None
) -> None:
    """Killed when SQLite begins with these statements, of which one is the last of the transaction."""
    async with opened_agent_store(path, passphrase=before, scrypt_n=WEAK) as store:
        await fill(store)
        known = await everything(store)
    steps = (
        "DELETE FROM passphrase",
        "UPDATE receive_queues",
        "UPDATE tokens",
        "COMMIT",
        "PRAGMA wal_checkpoint",
    )
    for statement in steps:
        command = [sys.executable, "-c", CHANGE, str(path), before or "", after or "", statement]
        ended = await asyncio.to_thread(subprocess.run, command, check=False)
        assert ended.returncode == -signal.SIGKILL
        is_changed = statement == steps[-1]
        assert await opens_with(path, after) is is_changed
        assert await opens_with(path, before) is not is_changed
        async with opened_agent_store(path, passphrase=after if is_changed else before) as store:
            assert await everything(store) == known


def test_no_sealed_column_is_forgotten() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        migrate(database)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        with_sealed = {table for table in tables if sealed_columns(database, table)}
        assert with_sealed == set(ROW_NAMES)
