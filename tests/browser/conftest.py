"""One browser and one `tocsin up` for all tests here. Without a browser they are skipped, and the summary says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.tabs import Tab
from tests.doubles.browsers import NO_BROWSER, browser_or_skip
from tests.doubles.small_lake import make_small_lake

SCREENSHOTS_VARIABLE: Final = "TOCSIN_SCREENSHOTS"
"""A folder to keep the screenshots in, for people to look at."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if any("tests in a browser were SKIPPED" in str(report.longrepr) for report in skipped):
        terminalreporter.section("no test ran in a browser", sep="!", red=True, bold=True)
        terminalreporter.line(NO_BROWSER, red=True, bold=True)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """For this folder only: while Playwright runs, its event loop does too, and other tests need theirs."""
    path = browser_or_skip()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


@pytest.fixture(scope="package")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page of `tocsin up`, with tables that were built beforehand."""
    folder = tmp_path_factory.mktemp("browser") / "up"
    folder.mkdir()
    make_small_lake(folder / "lake")
    with serving_page(folder, "--no-pipeline") as found:
        yield found


@contextmanager
def serving_page(folder: Path, *options: str) -> Iterator[str]:
    """The address of the page of a `tocsin up` with these options."""
    command = [sys.executable, "-m", "tocsin", "up", "--folder", str(folder), "--web", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        until = time.monotonic() + 90
        while not (found := re.search(r"^page +(http://\S+)$", said, re.MULTILINE)):
            line = process.stdout.readline()
            assert line, said
            assert time.monotonic() < until, said
            said += line
        try:
            yield found[1]
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    made = Tab(browser)
    yield made
    made.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get(SCREENSHOTS_VARIABLE)
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
