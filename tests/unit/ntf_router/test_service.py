"""`tocsin ntf start`: a whole process."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import asyncpg
import pytest

from tests.doubles.hostile_smp import hostile_smp
from tests.doubles.ntf_process import ADMIN_PASSWORD, NtfFolders
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import ed25519, until, x25519
from tests.unit.ntf_router.store.opened_stores import abandon
from tests.unit.ntf_router.store.samples import filled, subscription
from tocsin.durable.log_files import has_content
from tocsin.ntf_router.store.logs.log_reading import STORE_LOG, change_logs
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.wire.base64url import encode_base64url

STATISTICS = "ntf-server-stats.log"


@pytest.fixture
def folders(tmp_path: Path) -> NtfFolders:
    return NtfFolders(tmp_path)


async def test_it_serves_devices_and_operators_until_it_is_told_to_stop(folders: NtfFolders) -> None:
    router = await folders.start()
    try:
        assert "Store log: " + str(folders.store / "ntf-server-store.log") + "\n" in router.output
        client, key = await router.connect(), ed25519()
        token = DeviceToken(PushProvider.APNS_NULL, b"test_ntf_token")
        await client.expect(TokenRegistered, RegisterToken(token, key.public, x25519().public), key=key)
        answers = await router.operator("stats", f"auth {ADMIN_PASSWORD}", "stats", "server-info")
        assert answers[:2] == ["AUTH", "Current role is CPRAdmin"]
        assert "tknCreated: 0" in answers  # N4
        assert "Push notifications queue length: 0" in answers
        status, metrics = await router.get("/metrics")
        assert status == 200
        assert "simplex_ntf_connections 1\n" in metrics
        assert "simplex_ntf_tokens_total 1\n" in metrics
        assert await router.get("/health/live") == (200, "ok\n")
        assert await router.get("/health/ready") == (200, "ok\n")
        assert (await router.get("/health"))[0] == 404
        await client.close()
    finally:
        code = await router.stop()
    assert code == 0, "".join(router.output)
    assert (folders.store / STATISTICS).exists()
    again = await folders.start()
    try:
        _, metrics = await again.get("/metrics")
        assert "simplex_ntf_tokens_total 1\n" in metrics
    finally:
        assert await again.stop() == 0


async def test_without_a_store_log_it_says_so(tmp_path: Path) -> None:
    router = await NtfFolders(tmp_path, "--disable-store-log").start()
    assert await router.stop() == 0
    assert "Store log disabled.\n" in router.output


async def test_N12_maintenance_restores_and_saves_and_serves_nothing(folders: NtfFolders) -> None:
    """N12: the statistics of before are kept, in the format of today."""
    content = "\n".join(
        [
            "fromTime=2026-01-01T00:00:00Z",
            *(f"{key}=7" for key in ("tknCreated", "tknVerified", "tknDeleted", "subCreated", "subDeleted")),
            "ntfReceived=1",
            "ntfDelivered=2\n",
        ]
    )
    (folders.store / STATISTICS).write_text(content)
    code, output = await folders.outcome("--maintenance")
    assert code == 0, output
    assert "Server started in 'maintenance' mode, exiting" in output
    assert "Serving" not in output
    saved = (folders.store / STATISTICS).read_text()
    assert "fromTime=2026-01-01T00:00:00.000000Z\ntknCreated=7\n" in saved
    assert "ntfVrfInvalidTkn=0\n" in saved


async def test_N12_maintenance_brings_the_store_up_to_date_and_dials_nobody(folders: NtfFolders) -> None:
    """N12: what a killed router left is in the store log afterwards; its subscriptions wait for a real start."""
    async with hostile_smp() as smp:
        store = open_ntf_store(folders.store)
        owner = await filled(store, "a")
        subscribed = subscription("a1", owner, smp.location)
        assert await store.add_subscription(subscribed)
        abandon(store)
        assert any(map(has_content, change_logs(folders.store).values()))
        code, output = await folders.outcome("--maintenance", allow_private_hosts="on")
        assert code == 0, output
        assert not any(map(has_content, change_logs(folders.store).values()))
        log = (folders.store / STORE_LOG).read_text()
        assert encode_base64url(subscribed.subscription_id) in log
        assert smp.accepted == 0
        router = await folders.start(allow_private_hosts="on")
        try:
            await until(lambda: smp.accepted == 1)
        finally:
            assert await router.stop() == 0


async def test_N12_maintenance_makes_the_tables(folders: NtfFolders, url: str) -> None:
    """N12: migrations of the database are done."""
    code, output = await folders.outcome("--maintenance", store="url", db_connection=url)
    assert code == 0, output
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM ntf_server.migrations") > 0
        assert await connection.fetchval("SELECT count(*) FROM ntf_server.tokens") == 0
    finally:
        await connection.close()


async def test_statistics_that_cannot_be_read_are_set_aside_and_it_starts(folders: NtfFolders) -> None:
    (folders.store / STATISTICS).write_text("nonsense")
    router = await folders.start()
    assert await router.stop() == 0
    assert "cannot be read" in "".join(router.output)
    asides = [path for path in folders.store.glob(f"{STATISTICS}.*") if path.read_text() == "nonsense"]
    assert len(asides) == 1


async def test_a_port_in_use_is_one_sentence(folders: NtfFolders) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        code, output = await folders.outcome(port=port)
    assert code == 1
    assert f"tocsin: cannot listen on {HOST} port {port}: Address already in use" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"apns_key_file": "/none.p8", "apns_key_id": "A"}, "cannot read apns_key_file /none.p8"),
        ({"apns_prod_host": "localhost"}, "apns_prod needs a key"),
        ({"certificate_file": "/none.crt"}, "/none.crt: the file is missing"),
        ({"event_log": "/dev/null/events"}, "cannot use the event log"),
        ({"lowest_version": "9"}, "lowest_version"),
    ],
)
async def test_what_is_wrong_at_the_start_is_one_sentence(
    folders: NtfFolders, settings: dict[str, str], says: str
) -> None:
    code, output = await folders.outcome(**settings)
    assert code == 1
    assert says in output.splitlines()[-1]
    assert "Traceback" not in output


async def test_a_second_router_on_the_same_folder_is_refused(folders: NtfFolders) -> None:
    router = await folders.start()
    try:
        code, output = await folders.outcome()
    finally:
        assert await router.stop() == 0
    assert code == 1
    assert "another router uses" in output.splitlines()[-1]


async def test_metrics_are_also_written_to_a_file(folders: NtfFolders) -> None:
    router = await folders.start(prometheus_interval="0.05")
    path = folders.store / "ntf-server-metrics.txt"
    try:
        async with asyncio.timeout(10):
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        assert await router.stop() == 0
    assert path.read_text().startswith("# Recorded at: ")


async def test_events_are_published_at_the_stop_and_keys_are_kept_apart(folders: NtfFolders) -> None:
    events = folders.store / "events"
    router = await folders.start(event_log=events, event_log_segment_seconds="600")
    assert await router.stop() == 0
    assert list(events.iterdir()) == []  # nothing happened
    assert [path.suffix for path in (folders.store / "events-keys").iterdir()] == [".key"]
