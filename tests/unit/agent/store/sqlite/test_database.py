"""The file itself: who may read it, what is encrypted, who holds it, and what a crash leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.agent_samples import (
    DEVICE,
    ENDPOINT,
    NOTIFIER,
    agent_token,
    receive_queue,
    send_queue,
    subscription,
)
from tests.unit.agent.store.test_interface import WEAK
from tocsin.agent.store.records import AgentConnection, KeptMessage, NextAction, VerificationDue
from tocsin.agent.store.sqlite import migrations, token_tables
from tocsin.agent.store.sqlite.database import SqliteSession
from tocsin.agent.store.sqlite.migrations import MIGRATIONS, SqliteMigration, migrate
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.agent.store.sqlite.vault import Vault
from tocsin.errors import StoreError

PASSPHRASE = "correct horse"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def open_to_all(path: Path) -> None:
    path.chmod(0o644)


def modes(path: Path) -> set[str]:
    return {oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}


async def test_file_is_for_its_owner_alone(path: Path) -> None:
    previous = os.umask(0)
    try:
        async with opened_agent_store(path) as store:
            await store.save_token(agent_token())
            assert path.with_name("agent.db-wal").exists()
            assert modes(path) == {"0o600"}
    finally:
        os.umask(previous)


async def test_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    async with opened_agent_store(path):
        pass
    open_to_all(path)
    async with opened_agent_store(path):
        assert modes(path) == {"0o600"}


async def test_everything_is_there_after_opening_again(path: Path) -> None:
    queue = receive_queue("a", notifier=NOTIFIER)
    async with opened_agent_store(path) as store:
        await store.add_connection(AgentConnection("a"), queue, None)
        await store.save_token(agent_token())
        [row] = await store.put_subscriptions([subscription("a")])
    async with opened_agent_store(path) as store:
        assert await store.receive_queues("a") == [queue]
        assert await store.token() == agent_token()
        assert await store.subscription("a") == row


async def test_second_agent_cannot_open_the_file_and_the_first_keeps_it(path: Path) -> None:
    async with opened_agent_store(path) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match="in use by another agent"):
                async with opened_agent_store(path):
                    pass
        assert "in use by another agent" in opened_by_another_process(path)
        await store.save_token(agent_token())
    async with opened_agent_store(path) as store:
        assert await store.token() == agent_token()


def opened_by_another_process(path: Path) -> str:
    command = [sys.executable, "-c", OPEN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


OPEN = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from tocsin.errors import StoreError
    from tocsin.agent.store.sqlite.store import opened_agent_store

    async def main():
        try:
            async with opened_agent_store(Path(sys.argv[1])):
                print("opened")
        except StoreError as error:
            print(error)

    asyncio.run(main())
    """
)


async def test_several_stores_share_a_thread(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        async with (
            opened_agent_store(tmp_path / "1.db", executor=executor) as first,
            opened_agent_store(tmp_path / "2.db", executor=executor) as second,
        ):
            await first.save_token(agent_token())
            assert await second.token() is None
            assert await first.token() == agent_token()


# Encryption


async def fill(path: Path, passphrase: str | None) -> None:
    async with opened_agent_store(path, passphrase=passphrase, scrypt_n=WEAK) as store:
        queue = receive_queue("a", notifier=NOTIFIER, peer_key=b"peer" * 8)
        await store.add_connection(AgentConnection("a"), queue, send_queue("a"))
        await store.keep_message(KeptMessage("a", 1, b"id", 7, b"body of a message"))
        await store.save_token(agent_token(action=VerificationDue(b"the code")))
        await store.remove_token(delete_at_router=True, now=1)
        await store.save_token(agent_token(action=VerificationDue(b"the code")))
        await store.keep_endpoint_secret(ENDPOINT, most=4)


SECRETS = (
    b"the key",
    b"the secret",
    b"peer" * 8,
    b"notifier key",
    b"notifier secret",
    b"send key",
    b"token key",
    b"d" * 32,
    b"s" * 32,
    b"the code",
    b"body of a message",
    DEVICE.token,
    ENDPOINT.device_token.token,
    ENDPOINT.secret,
)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
async def test_no_secret_is_readable_in_an_encrypted_file(path: Path, passphrase: str | None) -> None:
    await fill(path, passphrase)
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    found = [secret for secret in SECRETS if secret in content]
    assert found == ([] if passphrase else list(SECRETS)), (
        "and the plain file shows that the search finds them"
    )


@pytest.mark.parametrize(
    ("made_with", "opened_with", "sentence"),
    [
        (PASSPHRASE, "wrong", "the passphrase of the agent's store is wrong"),
        (PASSPHRASE, None, "the agent's store is encrypted: a passphrase is needed"),
        (None, PASSPHRASE, "the agent's store is not encrypted: open it without a passphrase"),
    ],
)
async def test_other_passphrase_is_refused_with_one_sentence(
    path: Path, made_with: str | None, opened_with: str | None, sentence: str
) -> None:
    await fill(path, made_with)
    with pytest.raises(StoreError) as refused:
        async with opened_agent_store(path, passphrase=opened_with):
            pass
    assert str(refused.value) == f"{path}: {sentence}"
    async with opened_agent_store(path, passphrase=made_with) as store:
        assert await store.token() is not None


async def test_value_moved_to_another_row_is_not_decrypted(path: Path) -> None:
    async with opened_agent_store(path, passphrase=PASSPHRASE, scrypt_n=WEAK) as store:
        await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
        await store.add_connection(AgentConnection("b"), receive_queue("b"), None)
    with closing(sqlite3.connect(path)) as database:
        moved = "(SELECT key_sealed FROM receive_queues WHERE connection_id = 'b')"
        database.execute(f"UPDATE receive_queues SET key_sealed = {moved} WHERE connection_id = 'a'")  # noqa: S608
        database.commit()
    async with opened_agent_store(path, passphrase=PASSPHRASE) as store:
        assert await store.receive_queues("b")
        with pytest.raises(StoreError, match="damaged"):
            await store.receive_queues("a")


def test_the_same_value_is_sealed_differently_each_time() -> None:
    vault = Vault(b"k" * 32)  # type: ignore[arg-type]
    first, second = vault.seal(b"value", "place"), vault.seal(b"value", "place")
    assert first != second
    assert vault.unseal(first, "place") == vault.unseal(second, "place") == b"value"
    assert "kkk" not in repr(vault)


# Errors


async def test_errors_have_no_data_in_their_text(path: Path) -> None:
    async with opened_agent_store(path) as store:
        await store.add_connection(AgentConnection("secret-id"), None, None)
        with pytest.raises(StoreError) as refused:
            await store.add_connection(AgentConnection("secret-id"), None, None)
    assert "secret-id" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert "SQLite refused: SQLITE_CONSTRAINT" in str(refused.value)


@pytest.fixture
def something_else(path: Path) -> Path:
    path.write_bytes(b"certainly no database, and long enough for a header" * 40)
    return path


async def test_file_of_something_else_is_refused(something_else: Path) -> None:
    with pytest.raises(StoreError, match="not an agent's store"):
        async with opened_agent_store(something_else):
            pass


async def test_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        async with opened_agent_store(tmp_path / "missing" / "agent.db"):
            pass


async def test_row_that_makes_no_sense_is_damage_not_a_crash(path: Path) -> None:
    async with opened_agent_store(path) as store:
        await store.save_token(agent_token())
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE tokens SET mode = 'NEVER'")
        database.commit()
    async with opened_agent_store(path) as store:
        with pytest.raises(StoreError, match="damaged"):
            await store.token()


# Migrations


def test_steps_are_applied_once_and_in_order() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        assert migrate(database) == [step.name for step in MIGRATIONS]
        assert migrate(database) == []
        later = (*MIGRATIONS, SqliteMigration("9999_later", ("CREATE TABLE later (x INTEGER) STRICT",)))
        assert migrate(database, later) == ["9999_later"]


def test_step_that_fails_leaves_nothing_of_itself() -> None:
    broken = SqliteMigration("0002_broken", ("CREATE TABLE half (x INTEGER)", "not SQL"))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        with pytest.raises(sqlite3.OperationalError):
            migrate(database, (MIGRATIONS[0], broken))
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert "half" not in tables
        assert "connections" in tables
        assert [*database.execute("SELECT name FROM migrations")] == [("0001_connections",)]


async def test_file_of_a_newer_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened_agent_store(path):
        pass
    monkeypatch.setattr(migrations.migrate, "__defaults__", (MIGRATIONS[:1],))
    with pytest.raises(StoreError, match="newer version of Tocsin: 0002_tokens, 0003_subscriptions"):
        async with opened_agent_store(path):
            pass


def test_names_of_steps_are_sorted_and_unique() -> None:
    names = [step.name for step in MIGRATIONS]
    assert names == sorted(set(names))


BEFORE_WEB_PUSH = 7
"""Steps that there were before endpoints had secrets."""


async def test_file_from_before_web_push_keeps_its_token_and_takes_endpoints(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        migrate(database, MIGRATIONS[:BEFORE_WEB_PUSH])
        token_tables.save_token(SqliteSession(database, Vault()), agent_token())
    async with opened_agent_store(path) as store:
        assert await store.token() == agent_token()
        assert await store.endpoint_secrets() == []
        await store.keep_endpoint_secret(ENDPOINT, most=1)
    async with opened_agent_store(path) as store:
        assert await store.endpoint_secrets() == [ENDPOINT]


# Crashes

WRITE = textwrap.dedent(
    """
    import asyncio, sys
    from dataclasses import replace
    from pathlib import Path
    from tests.doubles.agent_samples import receive_queue, subscription
    from tocsin.agent.store.records import AgentConnection, NextAction
    from tocsin.agent.store.interface import Completion
    from tocsin.agent.store.sqlite.store import opened_agent_store

    async def main():
        async with opened_agent_store(Path(sys.argv[1])) as store:
            for number in range(10_000):
                name = f"{number:08}"
                await store.add_connection(AgentConnection(name), receive_queue(name), None)
                [row] = await store.put_subscriptions([subscription(name)])
                await store.complete([Completion(row, replace(row, action=NextAction.SUBSCRIBE))])
                print(name, flush=True)

    asyncio.run(main())
    """
)


def killed_writer(path: Path) -> list[str]:
    """What it had reported as written."""
    repository = Path(__file__).resolve().parents[5]
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True, cwd=repository
    ) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline().strip() for _ in range(30)]
        writer.send_signal(signal.SIGKILL)
        return reported + writer.stdout.read().split()


async def test_what_was_reported_as_written_survives_kill_9(path: Path) -> None:
    reported = killed_writer(path)
    async with opened_agent_store(path) as store:
        rows = {row.connection_id: row for row in await store.subscriptions()}
        assert all(rows[name].action is NextAction.SUBSCRIBE for name in reported)
        assert len(rows) <= len(reported) + 1, "at most the one that was being written"
        connections = {each.connection_id for each in await store.connections()}
        assert connections >= rows.keys()
        for connection_id in connections:
            assert len(await store.receive_queues(connection_id)) == 1
        [row] = await store.put_subscriptions([replace(rows[reported[0]], action=None)])
        assert row.version == 3
