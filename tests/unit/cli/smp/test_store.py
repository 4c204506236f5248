"""`tocsin smp store import`, `export` and `rollback`, from settings to PostgreSQL and back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.smp_router.store.postgres.opened_stores import contents, opened, stored
from tests.unit.smp_router.store.samples import a_message, a_queue
from tocsin.cli.main import run
from tocsin.smp_router.store.logs.log_reading import MESSAGE_LOG, STORE_LOG
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.schema_migrations import migrations


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "var"
    folder.mkdir()
    store = SmpMemoryStore()
    for _ in range(3):
        queue = a_queue()
        store.add_queue(queue)
        store.write_message(queue.recipient_id, a_message(), 5)
    fill_folder(folder, store, lambda _count: None)
    return folder


@pytest.fixture
def config(tmp_path: Path, url: str) -> list[str]:
    path = tmp_path / "smp-server.ini"
    path.write_text(f"[TOCSIN]\nstore_path: var\ndatabase_url: {url}\n")
    return ["--config", str(path)]


async def command(*arguments: str) -> int:
    """In a thread, as commands have event loops of their own."""
    return await asyncio.to_thread(run, ["smp", "store", *arguments])


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_logs_are_copied_into_the_database_and_back(
    logs: Path, config: list[str], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(logs)
    assert await command("import", *config) == 0
    assert "0 services, 3 queues, 3 messages, 0 notifications" in capsys.readouterr().out
    assert files_in(logs) == before
    source, _ = read_smp_store(logs)
    assert await stored(url) == contents(source)

    back = tmp_path / "back"
    back.mkdir()
    assert await command("export", *config, "--logs", str(back)) == 0
    assert "counted there: 0 services, 3 queues, 3 messages" in capsys.readouterr().out
    assert contents(read_smp_store(back)[0]) == contents(source)
    assert await stored(url) == contents(source)


async def test_a_dry_run_writes_nothing(
    logs: Path, config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(logs)
    assert await command("import", *config, "--dry-run") == 0
    assert "Would copy" in capsys.readouterr().out
    back = tmp_path / "back"
    back.mkdir()
    assert await command("export", *config, "--logs", str(back)) == 1
    assert "there is no store in it" in capsys.readouterr().err
    assert await command("import", *config) == 0
    assert await command("export", *config, "--logs", str(back), "--dry-run") == 0
    assert files_in(back) == {}
    assert files_in(logs) == before


async def test_a_target_with_a_store_is_refused_in_one_sentence(
    logs: Path, config: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("import", *config) == 0
    for arguments in (["import", *config], ["import", *config, "--dry-run"]):
        assert await command(*arguments) == 1
        assert capsys.readouterr().err == (
            "tocsin: the database has a store already (0 services, 3 queues, 3 messages, 0 notifications): "
            "nothing is overwritten\n"
        )
    for arguments in (["export", *config], ["export", *config, "--dry-run"]):
        assert await command(*arguments) == 1
        assert capsys.readouterr().err == (
            f"tocsin: {logs} has a store already ({STORE_LOG}, {MESSAGE_LOG}): nothing is overwritten\n"
        )


async def test_a_broken_line_is_named_and_can_be_left_out(
    logs: Path, config: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = logs / STORE_LOG
    path.write_bytes(b"BROKEN\n" + path.read_bytes())
    assert await command("import", *config) == 1
    error = capsys.readouterr().err
    assert f"{path}, line 1: " in error
    assert "with --skip-broken-lines: it continues without such lines, copies them to " in error
    assert error.endswith(f"copies them to {path}.broken, and loses the changes they record\n")
    assert await command("import", *config, "--skip-broken-lines") == 0
    assert "1 unreadable lines" in capsys.readouterr().out
    assert len((await stored(url))["queues"]) == 3
    assert (logs / f"{STORE_LOG}.broken").read_bytes() == b"BROKEN\n"


@pytest.mark.parametrize(
    ("ini", "problem"),
    [
        ("", "[TOCSIN] database_url is not set: set it, or name the database with --database"),
        (
            "[STORE_LOG]\nenable: off\n",
            "[STORE_LOG] enable is off, so the settings name no folder: name one with --logs",
        ),
    ],
)
def test_both_ends_must_be_known(
    tmp_path: Path, ini: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "smp-server.ini"
    path.write_text(ini)
    assert run(["smp", "store", "export", "--config", str(path)]) == 1
    assert problem in capsys.readouterr().err


async def test_the_tables_go_back_to_an_older_version(
    logs: Path, config: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("rollback", *config, "--to", "0003") == 1
    assert "there is no store yet" in capsys.readouterr().err
    assert await command("import", *config) == 0
    before = await stored(url)
    undone = ", ".join(each.name for each in reversed(migrations()[3:]))
    assert await command("rollback", *config, "--to", "0003", "--dry-run") == 0
    assert f"Would undo: {undone}\n" in capsys.readouterr().out
    assert await command("rollback", *config, "--to", "0003") == 0
    assert f"Undone: {undone}\n" in capsys.readouterr().out
    assert await command("rollback", *config, "--to", "0003_opening") == 0
    assert "already" in capsys.readouterr().out
    assert await command("rollback", *config, "--to", "0001") == 1
    assert capsys.readouterr().err.startswith("tocsin: 0001 has no place for 3 messages: make a backup")
    assert await stored(url) == before
    assert await command("rollback", *config, "--to", "0001", "--lose-data") == 0
    assert "Lost: 3 messages\n" in capsys.readouterr().out
    assert await stored(url) == {**before, "messages": {}}


async def test_tables_in_use_do_not_go_back(
    config: list[str], url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.smp_router.store.postgres.transfer.LOCK_WAIT", 0.0)
    _, database = await opened(url)
    assert await command("rollback", *config, "--to", "0003") == 1
    assert "another router uses the schema tocsin_smp" in capsys.readouterr().err
    await database.close()
