"""The browser that tests use. Without one they are skipped, or fail where one is required."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tools.setup_venv import REQUIRE_BROWSER_VARIABLE, find_browser

NO_BROWSER: Final = (
    "tests in a browser were SKIPPED: there is no Chrome or Chromium (Debian: apt install chromium; "
    "another one: TOCSIN_BROWSER=/path)"
)


def browser_or_skip() -> str:
    """The browser's path."""
    path = find_browser()
    if path is None:
        if os.environ.get(REQUIRE_BROWSER_VARIABLE):
            pytest.fail(f"{NO_BROWSER}; and {REQUIRE_BROWSER_VARIABLE} is set", pytrace=False)
        pytest.skip(NO_BROWSER)
    return path
