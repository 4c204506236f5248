"""Every row of ntf.md 8.3 has a test with our routers as processes, which names it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROWS = (
    "register and verify",
    "repeated registration, same credentials",
    "second registration, different credentials deletes first after verification",
    "verify after server restart",
    "re-verify after restart",
    "re-verify, first request timed out",
    "re-register after restart",
    "re-register, first request timed out",
    "multiple servers",
    "keep working until replaced",
    "re-register INVALID after register",
    "re-register INVALID after check",
    "server test function",
    "existing connection",
    "new connection",
    "change mode",
    "change token",
    "store log",
    "SMP restart",
    "SMP restart batched",
    "switch queue",
    "old token",
    "new token",
    "migrate to service subscriptions",
)
TESTS = Path(__file__).parents[1] / "adversity"


@pytest.mark.parametrize("row", ROWS)
def test_row_is_named_by_a_test(row: str) -> None:
    assert [path.name for path in TESTS.glob("test_agent_*.py") if f'"{row}"' in path.read_text()]
