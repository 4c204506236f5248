"""A short flood of both routers: honest users are served, memory stays within bounds, and everything recovers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from soak.__main__ import soak

pytestmark = pytest.mark.timeout(240)


async def test_routers_serve_honest_users_during_a_flood_and_recover(tmp_path: Path) -> None:
    shown = io.StringIO()
    problems = await soak(8.0, 1, tmp_path, Console(file=shown, width=120))
    assert problems == [], shown.getvalue()
    assert "simplex_ntf_registrations_refused" in shown.getvalue(), "what is refused is counted"
