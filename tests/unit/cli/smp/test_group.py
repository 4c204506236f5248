"""Setting up an SMP router from the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tocsin.cli import smp
from tocsin.cli.main import build_parser, run
from tocsin.protocol.addresses import RouterAddress
from tocsin.smp_router.opened_store import StartOptions
from tocsin.smp_router.settings.files import load_smp_settings
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.transport.credential_files import read_authority, read_credentials, read_fingerprint
from tocsin.wire.base64url import encode_base64url

FILES = ["ca.crt", "ca.key", "fingerprint", "server.crt", "server.key", "smp-server.ini"]


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TOCSIN_SMP_"):
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


def init(folder: Path, *more: str, host: str = "smp.example.com") -> int:
    store = str(folder.parent / "var")
    return run(["smp", "init", "--folder", str(folder), "--store", store, "--host", host, *more])


def config(folder: Path) -> list[str]:
    return ["--config", str(folder / "smp-server.ini")]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("command", [module.NAME for module in smp.SUBCOMMANDS])
def test_every_subcommand_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(["smp", command, "--help"])
    assert end.value.code == 0
    assert f"example: tocsin smp {command}" in capsys.readouterr().out


def test_the_subcommand_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["smp"])
    assert end.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_init_makes_the_files_and_prints_the_address(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, host="smp.example.com,abc.onion") == 0
    assert sorted(path.name for path in folder.iterdir()) == FILES
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert [name for name, mode in modes.items() if mode != 0o644 and mode != 0o600] == []
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "ca.key",
        "server.key",
        "smp-server.ini",
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    last_line = capsys.readouterr().out.splitlines()[-1]
    address = RouterAddress.parse(last_line.removeprefix("Address: "))
    assert address.location.key_hash == read_fingerprint(folder) == read_credentials(folder).fingerprint
    assert address.location.hosts == ("smp.example.com", "abc.onion")
    assert address.port_number == 5223
    settings = load_smp_settings(folder / "smp-server.ini", {})
    assert settings.store == folder.parent / "var"
    assert settings.credentials == folder
    assert settings.create_password is None


@pytest.mark.parametrize("algorithm", ["ED25519", "ED448"])
def test_init_uses_the_algorithm_asked_for(algorithm: str, folder: Path) -> None:
    assert init(folder, "--algorithm", algorithm) == 0
    signature_length = {"ED25519": 64, "ED448": 114}[algorithm]
    credentials = read_credentials(folder)
    assert credentials.chain[0][-signature_length - 3 :][:2] == bytes([0x03, signature_length + 1])


def test_init_puts_the_password_into_the_settings_and_one_address(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, "--password", "correct", "--port", "5299") == 0
    shown = capsys.readouterr().out
    fingerprint = encode_base64url(read_fingerprint(folder))
    assert f"smp://{fingerprint}:correct@smp.example.com:5299\n" in shown
    assert f"Address: smp://{fingerprint}@smp.example.com:5299\n" in shown
    assert load_smp_settings(folder / "smp-server.ini", {}).create_password == "correct"


def test_random_passwords_differ(tmp_path: Path) -> None:
    passwords = set()
    for name in ("one", "two"):
        assert init(tmp_path / name, "--random-password") == 0
        password = load_smp_settings(tmp_path / name / "smp-server.ini", {}).create_password
        assert password is not None
        assert len(password) == 32
        passwords.add(password)
    assert len(passwords) == 2


@pytest.mark.parametrize("name", FILES)
def test_init_overwrites_nothing(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text("mine")
    assert init(folder) == 1
    assert f"already has files of a router ({name})" in capsys.readouterr().err
    assert contents(folder) == {name: b"mine"}


@pytest.mark.parametrize(
    ("arguments", "host", "says"),
    [
        (["--password", "with space"], "a", "--password: [AUTH] create_password: a password"),
        (["--port", "x"], "a", "--port: [TRANSPORT] port: one port or more"),
        ([], "a b", "--host: [TRANSPORT] host: host names"),
        ([], "x" * 65, "cannot be the name in a certificate"),
    ],
)
def test_init_with_wrong_values_leaves_nothing_behind(
    arguments: list[str], host: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, *arguments, host=host) == 1
    error = capsys.readouterr().err
    assert says in error
    assert "with space" not in error
    assert not folder.exists()


def test_init_may_only_say_what_it_would_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(folder, "--dry-run") == 0
    assert "Would create" in capsys.readouterr().out
    assert not folder.exists()


def test_init_in_a_place_where_nothing_can_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert init(tmp_path / "file" / "router") == 1
    error = capsys.readouterr().err
    assert "Not a directory" in error
    assert error.count("\n") == 1


def test_config_check_finds_a_new_router_in_order(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["smp", "config", "check", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert "Settings and certificates are valid." in shown
    assert f"smp://{encode_base64url(read_fingerprint(router))}@smp.example.com" in shown


def test_config_check_tells_what_is_wrong(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (router / "server.key").unlink()
    assert run(["smp", "config", "check", *config(router)]) == 1
    assert "server.key: the file is missing" in capsys.readouterr().err
    with (router / "smp-server.ini").open("a") as file:
        file.write("prot: 1\n")
    assert run(["smp", "config", "check", *config(router)]) == 1
    assert "unknown key `prot` in [TOCSIN]" in capsys.readouterr().err
    assert run(["smp", "config", "check", *config(router / "nowhere")]) == 1
    assert "does not exist: create a router with `tocsin smp init" in capsys.readouterr().err


def test_config_check_needs_the_host(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (router / "smp-server.ini").write_text("")
    assert run(["smp", "config", "check", *config(router)]) == 1
    assert "[TRANSPORT] host is not set" in capsys.readouterr().err


def test_config_show_tells_values_and_sources_without_secrets(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(folder, "--password", "hidden-password") == 0
    capsys.readouterr()
    monkeypatch.setenv("TOCSIN_SMP_MESSAGE_QUOTA", "4")
    assert run(["smp", "config", "show", *config(folder)]) == 0
    shown = capsys.readouterr().out
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines()}
    assert lines["[TOCSIN] message_quota"][2:] == ["4", "environment", "variable", "TOCSIN_SMP_MESSAGE_QUOTA"]
    assert lines["[AUTH] create_password"][2] == "(hidden)"
    assert "hidden-password" not in shown


def test_cert_makes_a_new_leaf_under_the_same_identity(
    router: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, old_leaf = contents(router), read_credentials(router)
    assert run(["smp", "cert", *config(router)]) == 0
    after, leaf = contents(router), read_credentials(router)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"server.crt", "server.key"}
    assert leaf.chain[0] != old_leaf.chain[0]
    assert leaf.fingerprint == old_leaf.fingerprint
    assert encode_base64url(leaf.fingerprint) in capsys.readouterr().out
    assert run(["smp", "config", "check", *config(router)]) == 0


def test_cert_may_only_say_what_it_would_do(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(router)
    assert run(["smp", "cert", "--dry-run", "--host", "other.example", *config(router)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Would replace server.crt and server.key")
    assert ": other.example, ED25519\n" in shown
    assert contents(router) == before


def test_cert_takes_the_algorithm_of_the_authority_or_the_one_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(folder, "--algorithm", "ED448") == 0
    assert run(["smp", "cert", *config(folder)]) == 0
    assert "smp.example.com, ED448" in capsys.readouterr().out
    assert run(["smp", "cert", "--algorithm", "ED25519", *config(folder)]) == 0
    assert "smp.example.com, ED25519" in capsys.readouterr().out


def test_cert_needs_the_key_of_the_same_authority(
    router: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = (router / "ca.key").read_bytes()
    (router / "ca.key").unlink()
    assert run(["smp", "cert", *config(router)]) == 1
    assert "ca.key: the file is missing" in capsys.readouterr().err
    (router / "ca.key").write_bytes(key)
    (router / "ca.key").chmod(0o600)
    assert init(tmp_path / "other") == 0
    (router / "fingerprint").write_bytes((tmp_path / "other" / "fingerprint").read_bytes())
    before = contents(router)
    assert run(["smp", "cert", *config(router)]) == 1
    assert "not the fingerprint of ca.crt" in capsys.readouterr().err
    assert contents(router) == before
    assert read_authority(router).fingerprint != read_fingerprint(router)


def test_start_runs_the_router_with_the_settings_of_file_and_environment(
    router: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SmpSettings] = []

    async def run_smp_router(settings: SmpSettings, options: StartOptions, *, workers: int) -> None:
        assert (options, workers) == (StartOptions(skip_broken_lines=True), 3)
        started.append(settings)

    monkeypatch.setattr("tocsin.smp_router.service.run_smp_router", run_smp_router)
    monkeypatch.setenv("TOCSIN_SMP_PORT", "0")
    assert run(["smp", "start", "--skip-broken-lines", "--workers", "3", *config(router)]) == 0
    [settings] = started
    assert settings.ports == (0,)
    assert settings.public_hosts == ("smp.example.com",)


def test_start_with_wrong_settings_starts_nothing(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (router / "smp-server.ini").write_text("[TRANSPORT]\nport: none\n")
    assert run(["smp", "start", *config(router)]) == 1
    assert "line 2: [TRANSPORT] port" in capsys.readouterr().err


def test_cert_needs_a_name(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (router / "smp-server.ini").write_text("")
    assert run(["smp", "cert", *config(router)]) == 1
    assert "name the host with --host" in capsys.readouterr().err
    assert run(["smp", "cert", "--host", "a.example", *config(router)]) == 0
