"""`tocsin doctor` at NTF routers: databases, SMP routers, push providers."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.doubles.ntf_process import NtfFolders
from tests.doubles.routers import HOST
from tests.doubles.smp_process import SmpFolders
from tests.unit.doctor.cases import look, statuses, surroundings
from tests.unit.ntf_router.store.samples import filled, subscription
from tocsin.doctor.findings import Finding, Status
from tocsin.doctor.push import NO_DEVICE, outcome_finding
from tocsin.doctor.stores import embedded_url
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.fcm import ACCOUNT_FILE, running_fake_fcm
from tocsin.push.fake.server import running_fake_apns
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, TokenInvalid
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import open_postgres_smp_store

PASSWORD = "hidden-password"


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOCSIN_", "NTF_SERVER_", "APNS_KEY_")):
            monkeypatch.delenv(name)


@pytest.fixture
def ntf(tmp_path: Path) -> NtfFolders:
    folders = NtfFolders(tmp_path / "ntf")
    folders.store.chmod(0o700)
    return folders


async def look_at(ntf: NtfFolders, *, online: bool = False, **settings: Any) -> dict[str, Finding]:
    settings = {"port": 0, **settings}
    return await look("ntf", ntf.config / "ntf-server.ini", surroundings(online=online), **settings)


def key_file(folder: Path) -> Path:
    path = folder / "key.p8"
    path.touch(mode=0o600)
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


async def test_a_router_that_runs_is_found_in_order(ntf: NtfFolders) -> None:
    router = await ntf.start()
    try:
        found = await look_at(
            ntf,
            port=router.port,
            listen=HOST,
            control_port=router.control_port,
            control_port_admin_password=PASSWORD,
            prometheus_port=router.metrics_port,
        )
    finally:
        await router.stop()
    port = f"port {router.port}"
    assert statuses(found, "certificates", port, "control port", "metrics", "store") == ["ok"] * 5
    assert found["metrics"].text == "the router reports that it is ready"
    assert found["SMP routers"].status is Status.SKIPPED
    assert found["push provider"].status is Status.WARN, "there is no key for Apple"
    assert PASSWORD not in repr(found)


async def with_routers(store: NtfStore, *routers: RouterLocation) -> None:
    owner = await filled(store, "a")
    for number, router in enumerate(routers):
        await store.add_subscription(subscription(number, owner, router))
    await store.close()


async def test_smp_routers_in_use_are_reached_or_named(ntf: NtfFolders, tmp_path: Path) -> None:
    smp = SmpFolders(tmp_path / "smp")
    router = await smp.start()
    here = RouterLocation((HOST,), str(router.port), smp.fingerprint)
    elsewhere = RouterLocation(("localhost",), "1", smp.fingerprint)
    gone = RouterLocation(("localhost",), "1", b"g" * 32)
    stranger = RouterLocation((HOST,), str(router.port), bytes(32))
    try:
        await with_routers(open_ntf_store(ntf.store), here)
        found = (await look_at(ntf, allow_private_hosts="on"))["SMP routers"]
        assert (found.status, found.text) == (Status.OK, "1 in use, reached and verified")

        found = (await look_at(ntf))["SMP routers"]
        assert found.status is Status.BAD, "private addresses are not dialled, as by the router itself"

        for path in ntf.store.iterdir():
            path.unlink()
        await with_routers(open_ntf_store(ntf.store), here, elsewhere, gone, stranger)
        found = (await look_at(ntf, allow_private_hosts="on"))["SMP routers"]
        assert found.status is Status.WARN
        assert found.text.startswith("2 of 3 tried cannot be reached: ")
        assert "localhost (no connection to port 1" in found.text
        assert f"{HOST} (another router answers at this address)" in found.text
    finally:
        await router.kill()
    assert (await look_at(ntf, allow_private_hosts="on"))["SMP routers"].status is Status.BAD


async def test_a_store_log_that_is_large_is_not_read(
    ntf: NtfFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_routers(open_ntf_store(ntf.store))
    monkeypatch.setattr("tocsin.doctor.stores.MOST_LOG_BYTES", 1)
    assert "too large" in (await look_at(ntf))["SMP routers"].text


async def test_the_database_of_an_ntf_router(ntf: NtfFolders, url: str) -> None:
    found = await look_at(ntf, db_connection="postgresql://nobody:hidden@127.0.0.1:1/x")
    assert found["database"].status is Status.BAD
    assert "hidden" not in repr(found)
    found = await look_at(ntf, db_connection=url)
    assert found["database"].status is Status.WARN
    assert "no tables" in found["database"].text
    store = await open_ntf_postgres_store(url)
    await with_routers(store, RouterLocation(("localhost",), "1", bytes(32)))
    found = await look_at(ntf, db_connection=url, allow_private_hosts="on")
    assert statuses(found, "database", "SMP routers") == ["ok", "bad"]

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DELETE FROM ntf_server_tocsin.tocsin_migrations WHERE name = '0002_direct'")
        found = await look_at(ntf, db_connection=url)
        assert found["database"].status is Status.WARN
        assert "older" in found["database"].text
        await connection.execute("INSERT INTO ntf_server.migrations (name, ts) VALUES ('2999_x', now())")
    finally:
        await connection.close()
    found = await look_at(ntf, db_connection=url)
    assert found["database"].status is Status.BAD
    assert "newer" in found["database"].text


async def test_the_instances_of_a_fleet_and_leases_without_a_holder(ntf: NtfFolders, url: str) -> None:
    await (await open_ntf_postgres_store(url)).close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "ntf_server_tocsin"})

    async def fleet() -> Finding:
        return (await look_at(ntf, db_connection=url, fleet="on"))["instances of the fleet"]

    try:
        assert (await fleet()).text == "no instance is running"
        number = await connection.fetchval(
            "INSERT INTO fleet_instances (name, expires_at)"
            " VALUES ('host a', now() + interval '1 hour') RETURNING number"
        )
        await connection.execute("INSERT INTO fleet_leases (name, kind) VALUES ('chores', 'chores')")
        found = await fleet()
        assert (found.status, found.text) == (
            Status.WARN,
            "1 leases have no living holder (1 running: host a)",
        )
        await connection.execute("UPDATE fleet_leases SET holder = $1", number)
        found = await fleet()
        assert (found.status, found.text) == (Status.OK, "1 running: host a; all leases have a holder")
        await connection.execute("UPDATE fleet_instances SET expires_at = now() - interval '1 second'")
        assert (await fleet()).text == "no instance is running"
    finally:
        await connection.close()


async def test_the_database_of_an_smp_router(tmp_path: Path, url: str) -> None:
    smp = SmpFolders(tmp_path / "smp")

    async def database(where: str) -> Finding:
        return (await look("smp", smp.config / "smp-server.ini", port=0, database_url=where))["database"]

    assert (await database("postgresql://127.0.0.1:1/x")).status is Status.BAD
    assert (await database(url)).status is Status.WARN
    _, kept = await open_postgres_smp_store(url, SmpMemoryStore(), now=0.0)
    assert (await database(url)).status is Status.OK, "also while a router uses it"
    await kept.close()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DELETE FROM tocsin_smp.migrations WHERE name LIKE '0004%'")
    finally:
        await connection.close()
    found = await database(url)
    assert found.status is Status.WARN
    assert "--maintenance" in found.next_step


async def test_an_embedded_database_that_does_not_run(ntf: NtfFolders, tmp_path: Path) -> None:
    assert (await look_at(ntf, store="embedded"))["database"].status is Status.BAD
    assert embedded_url(tmp_path) is None
    (tmp_path / "postmaster.pid").write_text("1\n/data\n2\n5432\n/sockets\n\n")
    assert embedded_url(tmp_path) == "postgresql://postgres:@/postgres?host=/sockets"


async def test_an_embedded_database_is_asked_through_its_socket(ntf: NtfFolders) -> None:
    # Not in pytest's folder: for root the server runs as another user.
    with TemporaryDirectory(prefix="tocsin-doctor-test-") as folder:
        os.chmod(folder, 0o711)  # noqa: S103 - as above
        async with embedded_database(Path(folder) / EMBEDDED_FOLDER) as url:
            await with_routers(await open_ntf_postgres_store(url))
            found = await look_at(ntf, store="embedded", store_path=folder)
    assert statuses(found, "database", "SMP routers") == ["ok", "skipped"]


async def test_the_key_for_apple(ntf: NtfFolders, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    chosen: dict[str, Any] = {"apns_key_file": key, "apns_key_id": "ABC"}
    found = await look_at(ntf, **chosen)
    assert statuses(found, "key for Apple", "push provider") == ["ok", "skipped"]
    assert "--online" in found["push provider"].next_step
    key.chmod(0o644)
    found = await look_at(ntf, **chosen)
    assert (found["key for Apple"].status, found["key for Apple"].next_step) == (
        Status.BAD,
        f"chmod 600 {key}",
    )
    key.chmod(0o640)
    assert (await look_at(ntf, **chosen))["key for Apple"].status is Status.WARN
    key.write_text("no key")
    assert (await look_at(ntf, **chosen))["key for Apple"].status is Status.BAD
    key.unlink()
    assert "cannot read apns_key_file" in (await look_at(ntf, **chosen))["key for Apple"].text
    nobody: dict[str, Any] = {"apns_prod_host": "off", "apns_dev_host": "off"}
    assert (await look_at(ntf, **nobody))["push provider"].status is Status.WARN


async def test_a_provider_is_asked_only_online_and_for_no_device(ntf: NtfFolders, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    async with running_fake_apns(tmp_path / "apns") as apns:
        chosen: dict[str, Any] = {
            "apns_key_file": key,
            "apns_key_id": "ABC",
            "apns_prod_host": "off",
            "apns_dev_host": "off",
            "apns_test_host": "localhost",
            "apns_test_port": apns.port,
            "apns_test_ca_file": apns.ca_file,
            "apns_connect_timeout": 2,
            "apns_request_timeout": 2,
        }
        apns.behave(Respond(400, "BadDeviceToken"))
        found = (await look_at(ntf, **chosen, online=True))["push provider"]
        assert (found.status, found.text) == (Status.OK, "apns_test answers, and accepts our key")
        asked = await apns.next_request()
        assert asked.device_token == NO_DEVICE
        apns.behave(Respond(403, "InvalidProviderToken"))
        found = (await look_at(ntf, **chosen, online=True))["push provider"]
        assert found.status is Status.BAD
        assert "apns_team_id" in found.next_step
    found = (await look_at(ntf, **chosen, online=True))["push provider"]
    assert found.status is Status.BAD
    assert "cannot be used now" in found.text


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Accepted(), "ok"),
        (TokenInvalid(InvalidReason.BAD), "ok"),
        (RetryLater("ExpiredProviderToken"), "bad"),
        (RetryLater("connection"), "bad"),
        (PushRefused("TopicDisallowed"), "bad"),
    ],
)
def test_every_answer_of_a_provider_says_something(outcome: PushOutcome, status: str) -> None:
    found = outcome_finding("apns_prod", outcome, with_key=True)
    assert found.status == status
    assert bool(found.next_step) is (status == "bad")


async def test_the_key_for_web_push_is_looked_at(ntf: NtfFolders) -> None:
    alone: dict[str, Any] = {"webpush": "on", "webpush_subject": "https://op.test"}
    alone |= {"apns_prod_host": "off", "apns_dev_host": "off"}
    found = await look_at(ntf, **alone)
    assert found["key for Web Push"].text == "the router creates it at its first start"
    assert "push provider" not in found
    path = key_file(ntf.config)
    found = await look_at(ntf, webpush_key_file=path, **alone)
    assert found["key for Web Push"].status is Status.OK
    path.chmod(0o644)
    found = await look_at(ntf, webpush_key_file=path, **alone)
    assert found["key for Web Push"].status is Status.BAD
    path.write_text("no key")
    found = await look_at(ntf, webpush_key_file=path, **alone)
    assert "holds no unencrypted private key" in found["key for Web Push"].text


async def test_the_key_for_firebase_is_looked_at(ntf: NtfFolders, tmp_path: Path) -> None:
    alone: dict[str, Any] = {"apns_prod_host": "off", "apns_dev_host": "off"}
    async with running_fake_fcm(tmp_path / "fcm") as fcm:
        path = tmp_path / "fcm" / ACCOUNT_FILE
        alone |= {
            "fcm_key_file": path,
            "fcm_host": fcm.host,
            "fcm_port": fcm.port,
            "fcm_ca_file": fcm.ca_file,
        }
        found = await look_at(ntf, **alone)
        assert (
            found["key for Firebase"].text
            == "it is the key of a service account, and only its owner can read it"
        )
        assert found["push provider"].text == "fcm: not tested"
        found = await look_at(ntf, online=True, **alone)
        assert found["push provider"].text == "fcm answers, and accepts our service account"
        fcm.behave_tokens(Respond(400, "invalid_grant"))
        found = await look_at(ntf, online=True, **alone)
        assert found["push provider"].text == "fcm does not accept our service account: oauth_invalid_grant"
        fcm.behave(Respond(400, "INVALID_ARGUMENT"), times=None)
        found = await look_at(ntf, online=True, **alone)
        assert found["push provider"].text == "fcm answers, but refuses our pushes: INVALID_ARGUMENT"
    found = await look_at(ntf, online=True, **alone)
    assert found["push provider"].text == "fcm cannot be used now: oauth_connection"
    path.write_text("{}")
    found = await look_at(ntf, **alone)
    assert "not the key file of a service account" in found["key for Firebase"].text
