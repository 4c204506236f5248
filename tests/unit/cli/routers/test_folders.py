"""A router is created in a folder, and every other command finds it by that folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.doubles.routers import HOST
from tocsin.cli.main import run

BOTH = pytest.mark.parametrize("kind", ["smp", "ntf"])
READY = {"smp": b"serving on ports", "ntf": b"Serving NTF protocol on port"}
SECONDS = 15.0


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOCSIN_", "NTF_SERVER_")):
            monkeypatch.delenv(name)


def init(kind: str, folder: Path, *more: str) -> list[str]:
    """Creates the router; the arguments with which other commands name it."""
    where = ["--folder", str(folder)]
    created = [*where, "--host", HOST, "--store", str(folder.parent / "var"), *more]
    assert run([kind, "init", *created]) == 0
    return where


@BOTH
@pytest.mark.parametrize("format_", ["ini", "toml"])
async def test_what_init_creates_is_found_by_config_cert_start_and_doctor(
    kind: str, format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = init(kind, tmp_path / "router", "--format", format_)
    address = capsys.readouterr().out.split()[-1]

    assert run([kind, "config", "check", *where]) == 0
    assert f"Address: {address}\n" in capsys.readouterr().out
    assert run([kind, "cert", *where, "--dry-run"]) == 0
    assert str(tmp_path / "router") in capsys.readouterr().out
    assert run([kind, "store", "import", *where, "--dry-run"]) == 1  # no database
    assert "name the database with --database" in capsys.readouterr().err

    environment = {**os.environ, f"TOCSIN_{kind.upper()}_PORT": "0", f"TOCSIN_{kind.upper()}_LISTEN": HOST}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tocsin", kind, "start", *where, env=environment, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output = process.stderr if kind == "smp" else process.stdout
    async with asyncio.timeout(SECONDS):
        while READY[kind] not in await output.readline():
            pass
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0

    assert await asyncio.to_thread(run, ["doctor", *where, "--timeout", "1"]) == 1
    shown = capsys.readouterr().out
    assert f"{kind.upper()} router\n" in shown
    assert "nothing answers" in shown


@BOTH
def test_a_folder_without_a_router_names_the_next_command(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["start"], ["config", "check"], ["cert"], ["store", "export"]):
        assert run([kind, *command, "--folder", str(tmp_path)]) == 1
        assert f"`tocsin {kind} init --folder {tmp_path}`" in capsys.readouterr().err
    assert run(["doctor", "--folder", str(tmp_path)]) == 1
    assert f"`tocsin {kind} init`" in capsys.readouterr().err


@BOTH
def test_a_folder_and_a_file_cannot_both_be_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        run([kind, "config", "check", "--folder", str(tmp_path), "--config", str(tmp_path / "x.ini")])
    assert end.value.code == 2


def test_the_doctor_takes_the_folders_of_both_routers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smp, ntf = init("smp", tmp_path / "smp" / "etc"), init("ntf", tmp_path / "ntf" / "etc")
    capsys.readouterr()
    assert run(["doctor", *smp, *ntf, "--timeout", "1"]) == 1
    shown = capsys.readouterr().out
    assert "SMP router\n" in shown
    assert "NTF router\n" in shown


@BOTH
def test_a_folder_that_does_not_exist_is_named_in_the_next_command(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nowhere"
    assert run([kind, "start", "--folder", str(folder)]) == 1
    assert f"{folder} does not exist: create a router with `tocsin {kind} init --folder {folder}`" in (
        capsys.readouterr().err
    )
    folder.mkdir()
    assert run([kind, "start", "--folder", str(folder)]) == 1
    said = capsys.readouterr().err
    assert f"{folder / kind}-server.ini does not exist: create a router with" in said
    assert f"`tocsin {kind} init --folder {folder}`" in said
