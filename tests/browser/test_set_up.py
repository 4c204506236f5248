"""How the set-up finds a browser for these tests, and when it installs one. No browser is needed here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tools import setup_venv

VARIABLES = (
    setup_venv.BROWSER_VARIABLE,
    setup_venv.NO_BROWSER_VARIABLE,
    setup_venv.REQUIRE_BROWSER_VARIABLE,
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """A machine with some programs. Returns what it was told to run."""

    def make(*programs: str, root: bool = True, exit_code: int = 0) -> list[list[str]]:
        ran: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
            ran.append(command)
            return subprocess.CompletedProcess(command, exit_code, b"", b"E: no network\n")

        monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in programs else None)
        monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr("subprocess.run", run)
        return ran

    return make


def test_a_browser_is_found_by_its_usual_names_or_by_the_variable(
    machine: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("google-chrome", "my-browser")
    assert setup_venv.find_browser() == "/bin/google-chrome"
    monkeypatch.setenv(setup_venv.BROWSER_VARIABLE, "my-browser")
    assert setup_venv.find_browser() == "/bin/my-browser"
    monkeypatch.setenv(setup_venv.NO_BROWSER_VARIABLE, "1")
    assert setup_venv.find_browser() is None


def test_chromium_is_installed_where_root_has_apt(machine: Callable[..., list[list[str]]]) -> None:
    ran = machine("apt-get")
    setup_venv.install_browser()
    assert [command[:2] for command in ran] == [["/bin/apt-get", "install"]]
    assert ran[0][-1] == "chromium"


@pytest.mark.parametrize(
    ("programs", "root"), [(("apt-get", "chromium"), True), (("apt-get",), False), ((), True)]
)
def test_nothing_is_installed_beside_a_browser_or_without_root_and_apt(
    machine: Callable[..., list[list[str]]], programs: tuple[str, ...], root: bool
) -> None:
    ran = machine(*programs, root=root)
    setup_venv.install_browser()
    assert ran == []


def test_a_failed_installation_is_reported_and_does_no_harm(
    machine: Callable[..., list[list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = machine("apt-get", exit_code=100)
    setup_venv.install_browser()
    assert [command[1] for command in ran] == ["install", "update", "install"]
    assert "Chromium could not be installed (E: no network)" in capsys.readouterr().err
