"""`tocsin migrate ntf`: the reference's folders and tables, to Tocsin and back."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest

from tests.doubles.reference_7_0 import upgrade_to_7_0
from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    ROUTER,
    filled,
    filler,
    queue,
    received,
    subscription,
    token,
)
from tocsin.cli.main import run
from tocsin.crypto.web_push import WebPushSecret
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.ntf_router.settings.settings import StoreKind
from tocsin.ntf_router.store.interface import NtfStore, ntf_totals_of
from tocsin.ntf_router.store.logs.log_reading import (
    LAST_NOTIFICATIONS,
    LOCK,
    STATE,
    STORE_LOG,
    change_log,
    change_logs,
)
from tocsin.ntf_router.store.logs.store_files import open_ntf_store, read_ntf_store
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.records import Associated
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.transport.credential_files import read_fingerprint

TOTALS = "2 tokens, 4 subscriptions, 1 services, 2 notifications"

# As `ntf-server init` writes it, with what operators uncomment.
INI = """\
[STORE_LOG]
# The server uses memory or PostgreSQL database for persisting queue records.
enable: on
# db_connection: postgresql://ntf@/ntf_server_store
db_schema: ntf_server
log_stats: off

[AUTH]
control_port_admin_password: hidden-password

[TRANSPORT]
host: ntf.example
port: 15443
log_tls_errors: off
websockets: 443

[SUBSCRIBER]
own_server_domains: example.im

[INACTIVE_CLIENTS]
disconnect: off
# ttl: 43200
"""


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOCSIN_", "NTF_SERVER_", "APNS_KEY_")):
            monkeypatch.delenv(name)


@dataclass(frozen=True)
class Reference:
    """A server of the reference that was stopped."""

    config: Path
    data: Path

    @property
    def ini(self) -> Path:
        return self.config / "ntf-server.ini"

    def files(self) -> dict[str, bytes]:
        folders = (self.config, self.data)
        return {str(path): path.read_bytes() for folder in folders for path in folder.iterdir()}

    def arguments(self, *more: object) -> list[str]:
        return ["migrate", "ntf", "--from", str(self.config), "--from-data", str(self.data), *map(str, more)]


async def fill(store: NtfStore) -> None:
    await filled(store, "a", "a1", "a2", cron_minutes=25)
    other = await filled(store, "b", "b1")
    await store.add_subscription(subscription("b2", other, OTHER_ROUTER))
    await store.subscribed(ROUTER, [queue("a1").notifier_id], filler("service", 24))
    await store.add_notifications(ROUTER, [received("a1", 1, at=10.25), received("b1", 3, at=12.0)])
    await store.close()


@pytest.fixture
async def reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Reference:
    made = Reference(tmp_path / "reference" / "etc", tmp_path / "reference" / "var")
    assert (
        run(["ntf", "init", "--ip", "127.0.0.1", "--folder", str(made.config), "--store", str(made.data)])
        == 0
    )
    made.ini.write_text(INI)
    await fill(open_ntf_store(made.data))
    for name in (STATE, LOCK):
        (made.data / name).unlink()
    for path in change_logs(made.data).values():
        path.unlink()
    assert sorted(path.name for path in made.data.iterdir()) == [LAST_NOTIFICATIONS, STORE_LOG]
    capsys.readouterr()
    return made


async def command(arguments: list[str]) -> int:
    """In a thread, as commands have event loops of their own."""
    return await asyncio.to_thread(run, arguments)


def to(folder: Path) -> list[str]:
    return ["--to", str(folder / "etc"), "--to-data", str(folder / "var")]


async def test_logs_are_moved_to_new_folders_and_back(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (reference.config / "vapid.privkey").write_bytes(b"the key for Web Push")
    before, ours, back = reference.files(), tmp_path / "ours", tmp_path / "back"
    assert await command(reference.arguments(*to(ours), "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert f"store in logs in {reference.data}: {TOTALS}" in shown
    assert "[TRANSPORT] websockets: Tocsin has no WebSockets; commented out" in shown
    assert "APNS_KEY_FILE" in shown
    assert not ours.exists()
    assert await command(reference.arguments(*to(ours))) == 0
    shown = capsys.readouterr().out
    assert f"verified: same identity, {TOTALS}" in shown
    assert "hidden-password" not in shown
    assert reference.files() == before
    settings = load_ntf_settings(ours / "etc" / "ntf-server.ini", {})
    assert (settings.store, settings.store_kind) == (ours / "var", StoreKind.MEMORY)
    assert settings.control_port_admin_password == "hidden-password"
    assert read_fingerprint(ours / "etc") == read_fingerprint(reference.config)
    assert settings.webpush.key_file.read_bytes() == b"the key for Web Push"
    for key_file in (ours / "etc" / "server.key", settings.webpush.key_file):
        assert key_file.stat().st_mode & 0o777 == 0o600

    assert await command(["migrate", "ntf", "--back", "--from", str(ours / "etc"), *to(back)]) == 0
    shown = capsys.readouterr().out
    assert f"{TOTALS} in the reference's format" in shown
    assert "ntf-server database import" in shown
    assert str(ntf_totals_of(read_ntf_store(back / "var")[0])) == TOTALS


async def test_logs_go_into_a_database(
    reference: Reference, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "ours"
    assert await command(reference.arguments(*to(ours), "--database", url)) == 0
    shown = capsys.readouterr().out
    assert f"verified: same identity, {TOTALS}" in shown
    assert url not in shown
    settings = load_ntf_settings(ours / "etc" / "ntf-server.ini", {})
    assert (settings.store_kind, settings.database_url) == (StoreKind.URL, url)


async def test_logs_go_into_a_database_of_our_own_and_back(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not in pytest's folder: for root the server runs as another user.
    with TemporaryDirectory(prefix="tocsin-migrate-test-") as folder:
        os.chmod(folder, 0o711)  # noqa: S103 - as above
        ours, back = Path(folder) / "ours", tmp_path / "back"
        assert await command(reference.arguments(*to(ours), "--embedded", "--dry-run")) == 0
        assert "embedded PostgreSQL belongs to Tocsin" in capsys.readouterr().out
        assert await command(reference.arguments(*to(ours), "--embedded")) == 0
        assert await command(["migrate", "ntf", "--back", "--from", str(ours / "etc"), *to(back)]) == 0
        assert f"{TOTALS} in the reference's format" in capsys.readouterr().out


async def test_the_tables_of_the_reference_are_used_where_they_are(
    reference: Reference, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reference.ini.write_text(
        INI.replace("# db_connection: postgresql://ntf@/ntf_server_store", f"db_connection: {url}").replace(
            "websockets: 443", "websockets: off"
        )
    )
    assert await command(reference.arguments()) == 1
    assert "no schema ntf_server" in capsys.readouterr().err
    await fill(await open_ntf_postgres_store(url))
    connection = await asyncpg.connect(url)
    try:
        # What a server of the reference leaves, of the version before service certificates.
        await connection.execute("DROP SCHEMA ntf_server_tocsin CASCADE")
        before = await connection.fetch("SELECT * FROM ntf_server.tokens ORDER BY token_id")
        assert await command(reference.arguments("--dry-run")) == 0
        shown = capsys.readouterr().out
        assert f"store in PostgreSQL, schema ntf_server: {TOTALS}" in shown
        assert "ntf_server_tocsin" in shown
        assert await connection.fetchval("SELECT to_regnamespace('ntf_server_tocsin')") is None
        assert await command(reference.arguments()) == 0
        assert f"verified: same identity, {TOTALS}" in capsys.readouterr().out
        assert await connection.fetch("SELECT * FROM ntf_server.tokens ORDER BY token_id") == before
        assert await connection.fetchval("SELECT to_regnamespace('ntf_server_tocsin')") is not None
    finally:
        await connection.close()
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert await command(reference.arguments(*to(ours), "--database", "postgresql://x")) == 1
    assert "already in PostgreSQL" in capsys.readouterr().err
    assert await command(reference.arguments(*to(ours))) == 0
    assert await command(["migrate", "ntf", "--back", "--from", str(ours / "etc"), *to(back)]) == 0
    shown = capsys.readouterr().out
    assert "it uses them as they are" in shown
    assert url not in shown
    assert await command(reference.arguments("--back")) == 0


async def test_tables_of_7_0_are_used_where_they_are(
    reference: Reference, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways, and it says which version they are of. They were refused."""
    reference.ini.write_text(
        INI.replace("# db_connection: postgresql://ntf@/ntf_server_store", f"db_connection: {url}").replace(
            "websockets: 443", "websockets: off"
        )
    )
    await fill(await open_ntf_postgres_store(url))
    assert await command(reference.arguments("--dry-run")) == 0
    assert "the tables are those of the reference 6.5: 7.0 brings them up to date" in capsys.readouterr().out
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP SCHEMA ntf_server_tocsin CASCADE")
        await upgrade_to_7_0(url)
        for arguments in (["--dry-run"], [], ["--back"]):
            assert await command(reference.arguments(*arguments)) == 0
            shown = " ".join(capsys.readouterr().out.split())
            assert "2 tokens, 4 subscriptions, 0 services, 2 notifications" in shown
            assert "the tables are those of the reference 7.0" in shown
        names = await connection.fetch("SELECT name FROM ntf_server.migrations ORDER BY name")
        assert [row["name"] for row in names][-1] == "20251219_service_cert_per_server"
    finally:
        await connection.close()


async def test_a_database_of_an_older_reference_is_counted(
    reference: Reference, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reference.ini.write_text(
        INI.replace("# db_connection: postgresql://ntf@/ntf_server_store", f"db_connection: {url}").replace(
            "websockets: 443", "websockets: off"
        )
    )
    await fill(await open_ntf_postgres_store(url))
    connection = await asyncpg.connect(url)
    try:
        name = "20250517_service_cert"
        down = await connection.fetchval("SELECT down FROM ntf_server.migrations WHERE name = $1", name)
        await connection.execute("DROP SCHEMA ntf_server_tocsin CASCADE")
        await connection.execute(f"SET search_path TO ntf_server; {down}")
        await connection.execute("DELETE FROM ntf_server.migrations WHERE name = $1", name)
    finally:
        await connection.close()
    assert await command(reference.arguments("--dry-run")) == 0
    assert "2 tokens, 4 subscriptions, 0 services, 2 notifications" in capsys.readouterr().out
    assert await command(reference.arguments()) == 0
    assert "recorded as the reference does" in capsys.readouterr().out


async def test_back_in_place_needs_a_stop_that_was_graceful(
    reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    reference.ini.write_text(INI.replace("websockets: 443", "websockets: off"))
    assert await command(reference.arguments("--back")) == 0
    assert f"the reference finds {TOTALS}" in capsys.readouterr().out
    await open_ntf_store(reference.data).close()
    assert await command(reference.arguments("--back")) == 0
    change_log(reference.data, 1).write_bytes(b"x\n")
    assert await command(reference.arguments("--back", "--skip-broken-lines")) == 1
    assert "--maintenance" in capsys.readouterr().err


@pytest.mark.parametrize("kept_in", ["logs", "PostgreSQL"])
async def test_what_the_reference_does_not_know_is_told_on_the_way_back(
    reference: Reference, kept_in: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Direct notifications mean nothing to it; a token of Web Push or Firebase would stop it."""
    ini = INI.replace("websockets: 443", "websockets: off")
    if kept_in == "PostgreSQL":
        ini = ini.replace("# db_connection: postgresql://ntf@/ntf_server_store", f"db_connection: {url}")
    reference.ini.write_text(ini)

    async def opened() -> NtfStore:
        logs = kept_in == "logs"
        return open_ntf_store(reference.data) if logs else await open_ntf_postgres_store(url)

    store = await opened()
    owner = await filled(store, "d")
    assert await store.associate(owner.token_id, queue("direct"), 1_700_000_000) is Associated.ADDED
    await store.close()
    assert await command(reference.arguments("--back")) == 0
    assert "1 subscriptions are for direct notifications" in capsys.readouterr().out
    store = await opened()
    secret = WebPushSecret(b"x" * 48)
    endpoint = WebPushAddress.from_url("https://push.example/a", secret.receiver).token()
    assert await add_token(store, token("w", DeviceToken(PushProvider.WEBPUSH, endpoint)))
    await store.close()
    assert await command(reference.arguments("--back")) == 1
    assert "1 device tokens are for Web Push or Firebase" in capsys.readouterr().err
    store = await opened()
    assert await add_token(store, token("f", DeviceToken(PushProvider.FCM, b"x" * 150)))
    in_its_form = WebPushAddress.from_url("https://push.example/a", secret.receiver, WebPushForm.REFERENCE)
    assert await add_token(store, token("r", DeviceToken(PushProvider.WEBPUSH, in_its_form.token())))
    await store.close()
    assert await command(reference.arguments("--back")) == 1
    assert "3 device tokens are for Web Push or Firebase" in capsys.readouterr().err


async def test_what_cannot_be_moved_is_told(
    reference: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, says in (
        (["--embedded"], "need --to"),
        (["--back", "--embedded"], "not allowed with --back"),
        (["--from-data", tmp_path / "nowhere", *to(tmp_path / "c")], "does not exist"),
        ([], "Tocsin has no WebSockets"),
    ):
        assert await command(reference.arguments(*more)) == 1
        assert says in capsys.readouterr().err
    reference.ini.write_text(INI.replace("enable: on", "enable: off").replace("websockets: 443", ""))
    assert await command(reference.arguments()) == 1
    assert "no store to move" in capsys.readouterr().err


async def test_the_default_of_the_store_is_as_the_help_says(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the environment on the way there, whatever the settings say; of the settings on the way back."""
    monkeypatch.setenv("NTF_SERVER_LOG_PATH", str(reference.data))
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        run(["migrate", "ntf", "--help"])
    assert (
        "default: $NTF_SERVER_LOG_PATH or /var/opt/simplex-notifications; with --back: the one"
        in capsys.readouterr().out
    )
    elsewhere = INI.replace("websockets: 443", "") + f"\n[TOCSIN]\nstore_path: {tmp_path / 'nowhere'}\n"
    reference.ini.write_text(elsewhere)
    source = ["migrate", "ntf", "--from", str(reference.config)]
    assert await command(source) == 0
    assert f"store in logs in {reference.data}: {TOTALS}" in capsys.readouterr().out
    assert await command([*source, "--back"]) == 1
    assert f"{tmp_path / 'nowhere'} does not exist" in capsys.readouterr().err
