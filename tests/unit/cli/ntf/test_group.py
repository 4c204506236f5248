"""Setting up an NTF router from the command line."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest

from tests.unit.push.fcm.test_service_account import FILE as FIREBASE_KEY_FILE
from tocsin.cli import ntf
from tocsin.cli.main import build_parser, run
from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.crypto.web_push import VapidKey
from tocsin.durable.log_files import FolderLock
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.ntf_router.settings.settings import StoreKind
from tocsin.ntf_router.store.logs.log_reading import LOCK
from tocsin.operate.settings.ini_files import read_ini
from tocsin.protocol.addresses import RouterAddress
from tocsin.transport.credential_files import read_credentials, read_fingerprint
from tocsin.wire.base64url import encode_base64url

FILES = ["ca.crt", "ca.key", "fingerprint", "ntf-server.ini", "server.crt", "server.key"]
FOREIGN = ("TOCSIN_NTF_", "NTF_SERVER_", "APNS_KEY_")


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "router"


@pytest.fixture
def router(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A router that was just set up."""
    assert init(folder) == 0
    capsys.readouterr()
    return folder


def init(folder: Path, *more: str) -> int:
    where = ["--folder", str(folder), "--store", str(folder.parent / "var")]
    return run(["ntf", "init", *where, "--fqdn", "ntf.example.com", *more])


def config(folder: Path) -> list[str]:
    return ["--config", str(folder / "ntf-server.ini")]


def values(folder: Path) -> dict[tuple[str, str], str]:
    return {(e.section, e.key): e.value for e in read_ini(folder / "ntf-server.ini").entries}


@pytest.mark.parametrize("command", [module.NAME for module in ntf.SUBCOMMANDS])
def test_every_subcommand_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(["ntf", command, "--help"])
    assert end.value.code == 0
    assert f"example: tocsin ntf {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [module.NAME for module in ntf.SUBCOMMANDS])
def test_every_subcommand_is_documented(command: str) -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "ntf-router.md"
    assert f"`tocsin ntf {command}" in page.read_text().replace("\ntocsin", "`tocsin")


@pytest.mark.parametrize("with_log", [True, False])
def test_init_writes_what_the_reference_writes(
    folder: Path, with_log: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """ntf.md 8.4, CLITests."""
    assert init(folder, *([] if with_log else ["--disable-store-log"])) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Server initialized, you can modify configuration in {folder}/ntf-server.ini")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    written = values(folder)
    assert written["STORE_LOG", "enable"] == ("on" if with_log else "off")
    assert written["STORE_LOG", "log_stats"] == "off"
    assert written["TRANSPORT", "port"] == "443"
    assert written["TRANSPORT", "websockets"] == "off"
    fingerprint = encode_base64url(read_fingerprint(folder))
    assert f"Fingerprint: {fingerprint}\n" in shown
    address = shown.splitlines()[-1].removeprefix("Server address: ")
    assert str(RouterAddress.parse(address)) == f"ntf://{fingerprint}@ntf.example.com"
    assert (folder / "ntf-server.ini").stat().st_mode & 0o777 == 0o600
    assert (folder.parent / "var").stat().st_mode & 0o777 == 0o700


def test_init_overwrites_nothing(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in router.iterdir()}
    assert init(router) == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in router.iterdir()} == before


def test_a_dry_run_makes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(folder, "--dry-run") == 0
    assert "Would create" in capsys.readouterr().out
    assert not folder.parent.exists()


def test_without_a_name_the_address_is_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the reference; and its variables say where."""
    monkeypatch.setenv("NTF_SERVER_CFG_PATH", str(tmp_path / "c"))
    monkeypatch.setenv("NTF_SERVER_LOG_PATH", str(tmp_path / "l"))
    assert run(["ntf", "init", "-l"]) == 0
    assert values(tmp_path / "c")["TRANSPORT", "host"] == "127.0.0.1"
    assert values(tmp_path / "c")["TOCSIN", "store_path"] == str(tmp_path / "l")
    assert run(["ntf", "config", "check"]) == 0


def test_a_database_can_be_chosen(folder: Path) -> None:
    assert init(folder, "-d", "postgresql://ntf@/x", "--schema", "s1", "--pool-size", "3") == 0
    settings = load_ntf_settings(folder / "ntf-server.ini", {})
    assert settings.store_kind is StoreKind.URL
    assert (settings.database_url, settings.database_schema, settings.database_pool) == (
        "postgresql://ntf@/x",
        "s1",
        3,
    )


def test_the_embedded_database_can_be_chosen(folder: Path) -> None:
    assert init(folder, "--embedded") == 0
    assert load_ntf_settings(folder / "ntf-server.ini", {}).store_kind is StoreKind.EMBEDDED


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "x"], "--port: [TRANSPORT] port"),
        (["--fqdn", "a b"], "--host: "),
        (["--schema", "a;b"], "--schema: "),
        (["--pool-size", "0"], "--pool-size: "),
    ],
)
def test_wrong_options_are_told_before_anything_is_made(
    folder: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, *options) == 1
    assert says in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("algorithm", ["ED448", "ed25519"])
def test_certificates_can_have_either_algorithm_and_be_renewed(
    folder: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, "-a", algorithm) == 0
    before = read_credentials(folder)
    assert run(["ntf", "cert", *config(folder), "--dry-run"]) == 0
    assert read_credentials(folder) == before
    assert run(["ntf", "cert", *config(folder), "--cn", "new.example"]) == 0
    after = read_credentials(folder)
    assert after.fingerprint == before.fingerprint
    assert after != before
    assert f"new.example, {algorithm.upper()}" in capsys.readouterr().out


def test_check_says_which_device_tokens_are_served(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["ntf", "config", "check", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert "Device tokens of: no provider" in shown
    assert "apns_key_file" in shown
    monkeypatch.setenv("TOCSIN_NTF_APNS_TEST_HOST", "localhost")
    assert run(["ntf", "config", "check", *config(router)]) == 0
    assert "Device tokens of: apns_test" in capsys.readouterr().out


def test_check_says_the_key_for_web_push(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_NTF_WEBPUSH", "on")
    monkeypatch.setenv("TOCSIN_NTF_WEBPUSH_SUBJECT", "https://op.test")
    assert run(["ntf", "config", "check", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert "Device tokens of: webpush" in shown
    assert "Key for Web Push: created at the first start" in shown
    key = VapidKey.from_scalar(bytes(range(1, 33)))
    (router / "webpush-vapid.pem").write_bytes(key.pem)
    assert run(["ntf", "config", "check", *config(router)]) == 0
    assert f"Key for Web Push: {unpadded_base64url(key.public).decode()}\n" in capsys.readouterr().out
    (router / "webpush-vapid.pem").write_text("no key")
    assert run(["ntf", "config", "check", *config(router)]) == 1
    assert "the VAPID key file holds no" in capsys.readouterr().err


def test_vapid_prints_one_key_and_makes_it_once(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["ntf", "vapid", *config(router)]) == 1
    assert "webpush is off" in capsys.readouterr().err
    monkeypatch.setenv("TOCSIN_NTF_WEBPUSH", "on")
    monkeypatch.setenv("TOCSIN_NTF_WEBPUSH_SUBJECT", "https://op.test")
    shown = []
    for _ in range(2):
        assert run(["ntf", "vapid", *config(router)]) == 0
        shown.append(capsys.readouterr().out)
    key = VapidKey.from_pem((router / "webpush-vapid.pem").read_bytes())
    assert shown == [f"{unpadded_base64url(key.public).decode()}\n"] * 2
    assert stat.S_IMODE((router / "webpush-vapid.pem").stat().st_mode) == 0o600


def test_check_names_the_project_of_firebase(
    router: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("APNS_PROD_HOST", "APNS_DEV_HOST"):
        monkeypatch.setenv(f"TOCSIN_NTF_{name}", "off")
    path = tmp_path / "account.json"
    monkeypatch.setenv("TOCSIN_NTF_FCM_KEY_FILE", str(path))
    path.write_text(json.dumps(FIREBASE_KEY_FILE))
    assert run(["ntf", "config", "check", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert "Device tokens of: fcm" in shown
    assert "Firebase project: my-project-1" in shown
    path.write_text("{}")
    assert run(["ntf", "config", "check", *config(router)]) == 1
    assert "not the key file of a service account" in capsys.readouterr().err


def test_show_hides_passwords(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOCSIN_NTF_DB_CONNECTION", "postgresql://ntf:secret@/x")
    monkeypatch.setenv("TOCSIN_NTF_CONTROL_PORT_ADMIN_PASSWORD", "secret")
    assert run(["ntf", "config", "show", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert "secret" not in shown
    assert "[STORE_LOG] db_connection" in shown
    assert "environment variable TOCSIN_NTF_DB_CONNECTION" in shown


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_delete_asks_and_removes_both_folders(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (router.parent / "var" / "ntf-server-store.log").write_text("")
    (router.parent / "var" / "postgres").mkdir()
    (router / "webpush-vapid.pem").write_text("")  # made by the first start
    answer(monkeypatch, "Y\n")
    assert run(["ntf", "delete", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("WARNING: deleting the server will make all queues inaccessible")
    assert shown.endswith("Deleted configuration and log files\n")
    assert not router.exists()
    assert not (router.parent / "var").exists()


@pytest.mark.parametrize("text", ["n\n", "y\n", "\n", ""])
def test_anything_but_y_deletes_nothing(router: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, text)
    assert run(["ntf", "delete", *config(router)]) == 1
    assert sorted(path.name for path in router.iterdir()) == FILES


def test_a_running_router_is_not_deleted(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FolderLock(router.parent / "var" / LOCK)
    answer(monkeypatch, "Y\n")
    assert run(["ntf", "delete", *config(router)]) == 1
    lock.release()
    assert "another router uses" in capsys.readouterr().err
    assert sorted(path.name for path in router.iterdir()) == FILES


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_handed_over_is_deleted_with_its_key_but_not_a_shared_one(
    router: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    folder = router.parent / "var" / "handover"
    key = folder.with_name("shared" if shared else "handover-keys") / "handover.key"
    monkeypatch.setenv("TOCSIN_NTF_DELIVERY_HANDOVER", str(folder))
    if shared:
        monkeypatch.setenv("TOCSIN_NTF_DELIVERY_HANDOVER_KEYS", str(key.parent))
    names = ("pending-1-1-1.jsonl", ".open-2.jsonl", "outcomes/outcomes-x.jsonl")
    for path in (key, *(folder / name for name in names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    answer(monkeypatch, "Y\n")
    assert run(["ntf", "delete", *config(router)]) == 0
    assert not folder.exists()
    assert key.exists() == shared


def test_events_and_keys_are_deleted_too(router: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = router.parent / "var" / "events"
    monkeypatch.setenv("TOCSIN_NTF_EVENT_LOG", str(events))
    for path in (
        events / "events-1.jsonl",
        events / ".open-2.jsonl",
        events.with_name("events-keys") / "1.key",
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    answer(monkeypatch, "Y\n")
    assert run(["ntf", "delete", *config(router)]) == 0
    assert not (router.parent / "var").exists()


def test_files_of_others_survive_a_deletion(
    router: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (router / "notes.txt").write_text("mine")
    assert run(["ntf", "delete", *config(router), "--dry-run"]) == 0
    assert f"Would delete {router / 'ca.key'}" in capsys.readouterr().out
    assert (router / "ca.key").exists()
    answer(monkeypatch, "Y\n")
    assert run(["ntf", "delete", *config(router)]) == 0
    assert [path.name for path in router.iterdir()] == ["notes.txt"]
    assert "router: it contains notes.txt" in capsys.readouterr().out
