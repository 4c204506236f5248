"""`tocsin ntf store import` and `export`, from settings to PostgreSQL and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest

from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    ROUTER,
    filled,
    filler,
    queue,
    received,
    settled,
    subscription,
)
from tocsin.cli.main import run
from tocsin.ntf_router.store.logs.log_reading import STATE, STORE_LOG
from tocsin.ntf_router.store.logs.store_files import open_ntf_store, read_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.protocol.ntf.statuses import SubscriptionFailed

TOTALS = "2 tokens, 4 subscriptions, 1 services, 3 notifications"


@pytest.fixture
async def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "var"
    folder.mkdir()
    store = open_ntf_store(folder)
    owner = await filled(store, "a", "a1", "a2", cron_minutes=25, cron_sent_at=7)
    other = await filled(store, "b", "b1")
    elsewhere = subscription("b2", other, OTHER_ROUTER, status=SubscriptionFailed("SMP error QUOTA"))
    await store.add_subscription(elsewhere)
    await store.subscribed(ROUTER, [queue("a1").notifier_id], filler("service", 24))
    batch = [received("a1", 1, at=10.25), received("a2", 2, at=11.5), received("b1", 3, at=12.0)]
    await store.add_notifications(ROUTER, batch)
    await store.add_notifications(ROUTER, [received("a1", 4, at=13.0)])
    await store.settle([settled(owner, "a2", 2)])
    await store.close()
    return folder


@pytest.fixture
def config(tmp_path: Path, url: str) -> list[str]:
    path = tmp_path / "ntf-server.ini"
    path.write_text(f"[STORE_LOG]\ndb_connection: {url}\n[TOCSIN]\nstore_path: var\n")
    return ["--config", str(path)]


async def command(*arguments: str) -> int:
    """In a thread, as commands have event loops of their own."""
    return await asyncio.to_thread(run, ["ntf", "store", *arguments])


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def contents(store: NtfMemoryStore) -> tuple[object, ...]:
    return (
        {token.token_id: token for token in store.all_tokens()},
        {each.subscription_id: each for each in store.all_subscriptions()},
        dict(store.all_services()),
        {each.subscription_id: each for each in store.all_notifications()},
        store.all_totals(),
    )


async def test_logs_are_copied_into_the_database_and_back(
    logs: Path, config: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(logs)
    assert await command("import", *config) == 0
    assert f"counted in the database: {TOTALS}" in capsys.readouterr().out
    assert files_in(logs) == before
    source, _ = read_ntf_store(logs)

    store = await open_ntf_postgres_store(url)
    for token in source.all_tokens():
        assert await store.token(token.token_id) == token
    for each in source.all_subscriptions():
        assert await store.subscription_of(each.queue) == each
    assert await store.accounting() == source.all_totals()
    token_ids = [token.token_id for token in source.all_tokens()]
    assert await store.due_pushes(token_ids) == await source.due_pushes(token_ids)
    await store.close()

    back = tmp_path / "back"
    back.mkdir()
    assert await command("export", *config, "--logs", str(back)) == 0
    assert f"counted there: {TOTALS}" in capsys.readouterr().out
    assert contents(read_ntf_store(back)[0]) == contents(source)


async def test_a_dry_run_writes_nothing(
    logs: Path, config: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(logs)
    assert await command("import", *config, "--dry-run") == 0
    assert f"Would copy from {logs}: {TOTALS}" in capsys.readouterr().out
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT to_regclass('ntf_server.tokens')") is None
    await connection.close()
    back = tmp_path / "back"
    back.mkdir()
    assert await command("export", *config, "--logs", str(back)) == 1
    assert "there is no store in it" in capsys.readouterr().err
    assert await command("import", *config) == 0
    assert await command("export", *config, "--logs", str(back), "--dry-run") == 0
    assert files_in(back) == {}
    assert files_in(logs) == before


async def test_nothing_is_overwritten(
    logs: Path, config: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("import", *config) == 0
    capsys.readouterr()
    for arguments in (["import"], ["import", "--dry-run"]):
        assert await command(*arguments, *config) == 1
        assert f"the database has a store already ({TOTALS})" in capsys.readouterr().err
    assert await command("export", *config) == 1
    assert "nothing is overwritten" in capsys.readouterr().err


async def test_the_files_of_the_reference_are_imported_with_their_cron_intervals(
    logs: Path, config: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Appendix B 3 of ntf.md: the reference resets them to 0."""
    (logs / STATE).unlink()
    with (logs / STORE_LOG).open("ab") as file:
        file.write(b"TSTATUS bm9ib2R5 ACTIVE\n")
    assert await command("import", *config, "--schema", "other") == 0
    out = capsys.readouterr().out
    assert "Left out: 1 duplicate records" in out
    assert TOTALS in out
    store = await open_ntf_postgres_store(url, "other")
    tokens = [token for token in read_ntf_store(logs)[0].all_tokens() if token.cron_minutes == 25]
    assert await store.token(tokens[0].token_id) == tokens[0]
    assert (await store.accounting()).pending == 0
    await store.close()


async def test_a_broken_line_is_named_and_may_be_skipped(
    logs: Path, config: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with (logs / STORE_LOG).open("ab") as file:
        file.write(b"nonsense\n")
    before = files_in(logs)
    assert await command("import", *config) == 1
    assert f"{STORE_LOG}, line" in capsys.readouterr().err
    assert await command("import", *config, "--dry-run", "--skip-broken-lines") == 0
    assert files_in(logs) == before
    assert await command("import", *config, "--skip-broken-lines") == 0
    assert TOTALS in capsys.readouterr().out


async def test_a_failed_import_leaves_nothing(
    logs: Path,
    config: list[str],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(NtfMemoryStore, "all_services", lambda _self: iter(()))
    from tocsin.ntf_router.store.postgres import transfer as ntf_transfer

    monkeypatch.setattr(ntf_transfer, "ntf_totals_of", lambda _store: None)
    assert await command("import", *config) == 1
    assert "nothing was written" in capsys.readouterr().err
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT to_regclass('ntf_server.tokens')") is None
    await connection.close()


async def test_one_needs_a_database(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ntf-server.ini"
    path.write_text("[TOCSIN]\nstore_path: var\n")
    assert await command("import", "--config", str(path)) == 1
    assert "name the database with --database" in capsys.readouterr().err


async def test_the_embedded_database_is_meant_if_the_router_has_one(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not in pytest's folder: the server may run as another user, who cannot get there.
    with TemporaryDirectory(prefix="tocsin-postgres-") as name:
        path = Path(name) / "ntf-server.ini"
        path.write_text(f"[TOCSIN]\nstore_path: {name}\nstore: embedded\n")
        assert await command("import", "--config", str(path), "--logs", str(logs)) == 0
        assert TOTALS in capsys.readouterr().out
        back = logs.with_name("back")
        back.mkdir()
        assert await command("export", "--config", str(path), "--logs", str(back)) == 0
        assert contents(read_ntf_store(back)[0]) == contents(read_ntf_store(logs)[0])
