"""`tocsin up`: everything on this machine, with one command, checked by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doubles.installed_wheel import build, install

pytestmark = pytest.mark.timeout(240)


def surroundings() -> dict[str, str]:
    """What is installed counts, wherever the tests find their modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def up(folder: Path, *arguments: str, commands: Path | None = None) -> subprocess.CompletedProcess[str]:
    tocsin = [sys.executable, "-m", "tocsin"] if commands is None else [str(commands / "tocsin")]
    command = [*tocsin, "up", "--folder", str(folder), *arguments]
    env = None if commands is None else surroundings()
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)


def address(text: str) -> str:
    found = re.search(r"SMP router +(\S+)", text)
    assert found, text
    return found[1]


def test_the_wheel_of_the_source_distribution_has_everything(tmp_path: Path) -> None:
    """`up` with the installed wheel: messages arrive after pushes, everything adds up, also after a second start."""
    _, wheel = build(tmp_path / "dist")
    commands = install(wheel, tmp_path / "venv")
    where = "import tocsin; print(tocsin.__file__)"
    python = [str(commands / "python"), "-c", where]
    found = subprocess.run(python, capture_output=True, text=True, cwd=tmp_path, env=surroundings())
    assert found.stdout.startswith(str(tmp_path)), found

    first = up(tmp_path / "up", "--once", "--messages", "3", "--phones", "2", commands=commands)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "6 messages sent. All of them arrived after a push, and the accounting adds up." in first.stdout
    assert re.search(r"received +│ +6 │ +6 │", first.stdout), first.stdout
    again = up(tmp_path / "up", "--messages", "2", "--phones", "2", "--no-pipeline", commands=commands)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 messages sent" in again.stdout
    assert address(again.stdout) == address(first.stdout)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (folder / "ports.json").write_text(json.dumps({"smp": port, "ntf": 1, "metrics": 1, "push": 1}))
        ended = up(folder, "--once")
    assert ended.returncode == 1
    assert f"port {port} is in use" in ended.stderr
    assert "--folder" in ended.stderr


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = up(tmp_path / "file" / "up", "--once")
    assert ended.returncode == 1
    assert "choose another --folder" in ended.stderr


def test_a_signal_stops_all_parts(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tocsin",
        "up",
        "--folder",
        str(tmp_path / "up"),
        "--messages",
        "10000",
        "--no-pipeline",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        until = time.monotonic() + 60
        said = ""
        while "metrics" not in (line := process.stdout.readline()):
            said += line
            assert line, f"it ended: {said}"
            assert time.monotonic() < until, said
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, tmp_path)]


def _names(path: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in path.read_bytes()
    except OSError:
        return False
