"""From the table `notifications` to the router's store, and back to delivery."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import asyncpg
import pytest
from pyspark.sql import SparkSession

from tests.unit.ntf_router.store.samples import ROUTER, filled, filler, received, settled
from tests.unit.pipeline.rows import notifications
from tocsin.cli.ntf import replay as ntf_replay
from tocsin.cli.pipeline import replay as replay_command
from tocsin.errors import ConfigError, StoreError
from tocsin.events.delivery_events import DeliveryEvent, decode_event
from tocsin.events.event_log import PUBLISHED
from tocsin.events.replay import read_request
from tocsin.ntf_router.control_port import GREETING, NtfControlSession
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.repairs import offline_events
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store
from tocsin.ntf_router.store.records import ReceivedNotification
from tocsin.operate.control_port import ControlPasswords, LinePort
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import NOTIFICATIONS_TABLE
from tocsin.protocol.addresses import RouterAddress, Scheme

pytestmark = pytest.mark.timeout(180)
ADDRESS = RouterAddress(Scheme.SMP, ROUTER)


@pytest.fixture
def keep_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job would stop the session of all tests."""
    monkeypatch.setattr("tocsin.pipeline.jobs.replay.spark_session", lambda _: nullcontext(spark))


def command(module: ModuleType, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(list(map(str, arguments)))))


class Running:
    """A router with a control port."""

    def __init__(self) -> None:
        self.delivered = 0

    async def deliver_pending(self) -> int:
        self.delivered += 1
        return 1


async def receive(store: NtfPostgresStore, events: NtfEventRecorder, *all_of: ReceivedNotification) -> None:
    await store.add_notifications(
        ROUTER, all_of, before_commit=lambda results: events.received(ADDRESS, all_of, results)
    )


def events_in(folder: Path) -> list[DeliveryEvent]:
    return [
        decode_event(line)
        for path in sorted(folder.glob(PUBLISHED))
        for line in path.read_bytes().splitlines()
    ]


@pytest.mark.usefixtures("keep_session")
async def test_what_waits_is_delivered_what_ended_is_left_and_what_is_lost_is_named(
    spark: SparkSession, lake: Lake, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ini, request, running = tmp_path / "ntf-server.ini", tmp_path / "replay.jsonl", Running()
    port = LinePort(
        lambda: NtfControlSession(running, ControlPasswords(admin="secret")),  # type: ignore[arg-type]
        greeting=GREETING,
        port=0,
    )
    store = await open_ntf_postgres_store(url)
    owner = await filled(store, "a", "stuck", "ended", "lost", "accepted")
    async with port:
        ini.write_text(
            f"[STORE_LOG]\ndb_connection: {url}\n[TOCSIN]\nstore_path: var\nevent_log: events\n"
            f"[TRANSPORT]\ncontrol_port: {port.port}\n[AUTH]\ncontrol_port_admin_password: secret\n"
        )
        settings, now = load_ntf_settings(ini, {}), time.time()
        async with offline_events(settings, "ntf") as events:
            await receive(store, events, *(received(name, name, now) for name in ("stuck", "ended", "lost")))
            await receive(store, events, received("accepted", "accepted", now))
            await asyncio.sleep(0.001)  # the clock of the events: the end comes after all of the rest
            await store.settle([settled(owner, "accepted", "accepted")], before_commit=events.settled)
        written = events_in(tmp_path / "events")
        lake.table(NOTIFICATIONS_TABLE).publish(notifications(spark, written), key="test")
        async with offline_events(settings, "ntf") as events:
            await store.settle([settled(owner, "ended", "ended", "expired")], before_commit=events.settled)
        connection = await asyncpg.connect(url)
        nonce = filler(("nonce", "lost"), 24)
        await connection.execute(
            "DELETE FROM ntf_server_tocsin.pending_notifications WHERE nonce = $1", nonce
        )
        await connection.close()

        asked = ("--lake", lake.folder, "--out", request, "--older-than", 0, "--json")
        assert await asyncio.to_thread(command, replay_command, *asked) == 0
        assert json.loads(capsys.readouterr().out)["without_an_end"] == 3
        assert len(read_request(request).overdue) == 3
        assert await asyncio.to_thread(command, ntf_replay, request, "--config", ini, "--dry-run") == 1
        assert running.delivered == 0
        capsys.readouterr()
        assert await asyncio.to_thread(command, ntf_replay, request, "--config", ini, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert [said[name] for name in ("waiting", "ended", "erased", "lost")] == [1, 1, 0, 1]
    assert said["delivery"].endswith("ok, 1 tokens")
    assert running.delivered == 1
    [lost] = said["lost_ones"]
    assert lost["smp_host"] == ROUTER.hosts[0]

    for key in (tmp_path / "events-keys").iterdir():
        key.unlink()
    assert await asyncio.to_thread(command, ntf_replay, request, "--config", ini) == 0
    assert "3  cannot be identified: the keys of their days are erased" in capsys.readouterr().out
    await store.close()


def test_a_request_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "request.jsonl"
    path.write_text('{"replay":1,"as_of":1,"entries":2}\n{"period":"1-a","high":1,"low":2,"received_at":3}\n')
    with pytest.raises(ConfigError, match="1 notifications instead of 2"):
        read_request(path)
    with pytest.raises(ConfigError, match="cannot read the"):
        read_request(tmp_path / "nowhere")


def test_without_tables_the_next_step_is_named(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ingest and build first"):
        command(replay_command, "--lake", lake.folder)
    with pytest.raises(StoreError, match="there is no lake"):
        command(replay_command, "--lake", tmp_path / "mistyped")
