"""Settings files of both routers from the command line: TOML, INI, which of them, and what overrides them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tocsin.cli.main import run
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.smp_router.settings.files import load_smp_settings

HOSTS = {"smp": "smp.example.com", "ntf": "ntf.example.com"}
LOAD: dict[str, Callable[..., Any]] = {"smp": load_smp_settings, "ntf": load_ntf_settings}
BOTH = pytest.mark.parametrize("kind", ["smp", "ntf"])


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOCSIN_", "NTF_SERVER_", "APNS_KEY_")):
            monkeypatch.delenv(name)


def init(kind: str, folder: Path, *more: str) -> int:
    where = ["--folder", str(folder), "--store", str(folder.parent / "var")]
    return run([kind, "init", "--host", HOSTS[kind], *where, *more])


@BOTH
def test_init_writes_a_toml_file_that_says_the_same_as_the_ini_file(kind: str, tmp_path: Path) -> None:
    for form in ("ini", "toml"):
        assert init(kind, tmp_path / form, "--format", form) == 0
    made = {path.name for path in (tmp_path / "toml").iterdir()}
    assert f"{kind}-server.toml" in made
    assert f"{kind}-server.ini" not in made
    toml = tmp_path / "toml" / f"{kind}-server.toml"
    assert toml.stat().st_mode & 0o777 == 0o600
    settings = LOAD[kind](toml, {}), LOAD[kind](tmp_path / "ini" / f"{kind}-server.ini", {})
    assert len({(each.public_hosts, each.ports, each.store) for each in settings}) == 1
    assert tomllib.loads(toml.read_text())["transport"]["host"] == [HOSTS[kind]]


@BOTH
def test_init_does_not_put_a_second_format_beside_the_first(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{kind}-server.toml").write_text("")
    assert init(kind, tmp_path) == 1
    assert f"already has files of a router ({kind}-server.toml)" in capsys.readouterr().err


@BOTH
def test_the_file_in_a_folder_is_found_whatever_its_format(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "etc"
    assert init(kind, folder, "--format", "toml") == 0
    capsys.readouterr()
    assert run([kind, "config", "check", "--config", str(folder)]) == 0
    assert "are valid" in capsys.readouterr().out
    (folder / f"{kind}-server.ini").write_text("")
    assert run([kind, "config", "check", "--config", str(folder)]) == 1
    assert f"has both {kind}-server.ini and {kind}-server.toml" in capsys.readouterr().err
    assert run([kind, "config", "check", "--config", str(folder / f"{kind}-server.toml")]) == 0


@BOTH
def test_check_tells_everything_that_is_wrong(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(kind, tmp_path, "--format", "toml") == 0
    path = tmp_path / f"{kind}-server.toml"
    path.write_text('hello_second = 1\nhello_seconds = "1"\n[transport]\nport = 70000\n')
    assert run([kind, "config", "check", "--config", str(tmp_path), "--set", "porte=1"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("tocsin: ") for line in lines] == [True] * 4
    assert [n for n in (1, 2, 4) if any(f"toml, line {n}: " in line for line in lines)] == [1, 2, 4]
    path.write_text("")
    (tmp_path / "server.key").unlink()
    assert run([kind, "config", "check", "--config", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "server.key: the file is missing" in error
    assert "host is not set" in error


@BOTH
def test_show_has_the_names_of_the_files_format_and_the_sources(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(kind, tmp_path, "--format", "toml") == 0
    path = tmp_path / f"{kind}-server.toml"
    password = 'control_port_admin_password = "hidden-one"'
    path.write_text(path.read_text().replace('# control_port_admin_password = ""', password))
    monkeypatch.setenv(f"TOCSIN_{kind.upper()}_HELLO_SECONDS", "7")
    arguments = [kind, "config", "show", "--config", str(tmp_path), "--set", "drain_seconds=1"]
    capsys.readouterr()
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in shown.splitlines()}
    assert lines["hello_seconds"][:3] == ["7", "environment", "variable"]
    assert lines["drain_seconds"][:3] == ["1", "command", "line,"]
    assert lines["auth.control_port_admin_password"][0] == "(hidden)"
    assert lines["transport.log_tls_errors"] == ["false", "default"]
    assert run([*arguments, "--format", "json"]) == 0
    as_json = capsys.readouterr().out
    fields = {each["name"]: each for each in json.loads(as_json)}
    assert fields["hello_seconds"]["value"] == "7"
    assert fields["auth.control_port_admin_password"]["value"] is None
    assert fields["auth.control_port_admin_password"]["set"] is True
    assert fields["auth.control_port_user_password"]["set"] is False
    assert "hidden-one" not in shown + as_json


@BOTH
def test_settings_shown_as_toml_are_a_file_with_the_same_meaning(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(kind, tmp_path) == 0
    capsys.readouterr()
    overrides = [
        "--set",
        "port=1,2",
        "--set",
        "own_server_domains=a.test b.test",
        "--set",
        "drain_seconds=0.5",
    ]
    assert run([kind, "config", "show", "--format", "toml", "--config", str(tmp_path), *overrides]) == 0
    shown = capsys.readouterr().out
    toml = tmp_path / "shown.toml"
    toml.write_text(shown)
    with_overrides = LOAD[kind](tmp_path / f"{kind}-server.ini", {}, overrides[1::2])
    assert LOAD[kind](toml, {}) == with_overrides
