"""Exports of queues say the same whether a store is in logs or in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    REGISTERED,
    ROUTER,
    filled,
    filler,
    queue,
    subscription,
)
from tests.unit.smp_router.store.samples import a_notifier, a_queue, a_service
from tocsin.cli.main import run
from tocsin.events.queue_exports import id_of_text
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.protocol.ntf.statuses import SubscriptionFailed
from tocsin.smp_router.store.logs.store_files import fill_folder
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.wire.base64url import encode_base64url


async def command(*arguments: object) -> int:
    """In a thread, as commands have event loops of their own."""
    return await asyncio.to_thread(run, list(map(str, arguments)))


def rows(path: Path) -> list[dict[str, Any]]:
    """Without the first, and without the time."""
    first, *others = [json.loads(line) for line in path.read_text().splitlines()]
    assert (first["notifier_id"], first["id_high"], first["id_low"]) == ("", 0, 0)
    return sorted(
        ({key: value for key, value in each.items() if key != "taken_at"} for each in others), key=str
    )


async def test_notifiers_are_exported_from_logs_and_from_a_database(tmp_path: Path, url: str) -> None:
    store, service = SmpMemoryStore(), a_service()
    store.add_service(service)
    notifiers = [a_notifier(), a_notifier(service.service_id)]
    for notifier in notifiers:
        store.add_queue(replace(a_queue(), notifier=notifier))
    store.add_queue(a_queue())
    folder = made(tmp_path / "var")
    fill_folder(folder, store, lambda _: None)
    (tmp_path / "fingerprint").write_text(f"{encode_base64url(bytes(range(32)))}\n")
    host = "[TRANSPORT]\nhost: smp.example\nport: 5223\n[TOCSIN]\nstore_path: var\n"
    logs, database = tmp_path / "logs.ini", tmp_path / "database.ini"
    logs.write_text(host)
    database.write_text(f"{host}database_url: {url}\n")
    assert await command("smp", "store", "import", "--config", database) == 0
    for config in (logs, database):
        out = config.with_suffix(".jsonl")
        assert await command("smp", "store", "export-notifiers", "--config", config, out) == 0
    exported = rows(tmp_path / "logs.jsonl")
    assert rows(tmp_path / "database.jsonl") == exported
    assert {id_of_text(each["notifier_id"]) for each in exported} == {each.notifier_id for each in notifiers}
    assert sorted(each["service"] == 0 for each in exported) == [False, True]
    assert exported[0]["router"].endswith("@smp.example")


async def test_subscriptions_are_exported_from_logs_and_from_a_database(tmp_path: Path, url: str) -> None:
    folder = made(tmp_path / "var")
    store = open_ntf_store(folder)
    owner = await filled(store, "a", "a1", "a2")
    await filled(store, "b", "b1", status=REGISTERED)
    failed = subscription("a3", owner, OTHER_ROUTER, status=SubscriptionFailed("SMP error QUOTA"))
    await store.add_subscription(failed)
    await store.subscribed(ROUTER, [queue("a1").notifier_id], filler("service", 24))
    await store.close()
    logs, database = tmp_path / "logs.ini", tmp_path / "database.ini"
    logs.write_text("[STORE_LOG]\nenable: on\n[TOCSIN]\nstore: memory\nstore_path: var\n")
    database.write_text(f"[STORE_LOG]\ndb_connection: {url}\n[TOCSIN]\nstore_path: var\n")
    assert await command("ntf", "store", "import", "--config", database) == 0
    for config in (logs, database):
        out = config.with_suffix(".jsonl")
        assert await command("ntf", "store", "export-subscriptions", "--config", config, out) == 0
    exported = rows(tmp_path / "logs.jsonl")
    assert rows(tmp_path / "database.jsonl") == exported
    facts = {
        (each["status"], each["wanted"], each["associated"], each["token_active"], each["service"] != 0)
        for each in exported
    }
    assert facts == {
        ("ACTIVE", True, True, True, True),
        ("NEW", True, False, True, True),
        ("NEW", True, False, False, True),
        ("ERR SMP error QUOTA", False, False, True, False),
    }


async def test_an_export_of_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs.ini"
    logs.write_text("[STORE_LOG]\nenable: on\n[TOCSIN]\nstore: memory\nstore_path: var\n")
    made(tmp_path / "var")
    assert await command("ntf", "store", "export-subscriptions", "--config", logs, tmp_path / "x.csv") == 1
    assert "name the file .parquet or .jsonl" in capsys.readouterr().err


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
