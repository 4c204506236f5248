"""The short version of `make chaos`: a few faults, few phones, the same judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.__main__ import run_chaos

LIGHT = [
    "cut_connections",
    "half_close",
    "delay",
    "provider_trouble",
    "change_device_tokens",
]
"""After these no notification may have come twice or without a token."""
HEAVY = [
    "invalidate_tokens",
    "kill_smp",
    "kill_ntf",
    "restart_database",
    "kill_ntf_while_the_database_is_frozen",
    "delete_tokens",
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kinds", "faults"), [(LIGHT, 6), (HEAVY, 4)], ids=["light", "heavy"])
async def test_every_notification_has_an_outcome(tmp_path: Path, kinds: list[str], faults: int) -> None:
    said: list[str] = []
    result, struck = await run_chaos(
        tmp_path, faults=faults, phones=6, seed="continuous", only=kinds, say=said.append
    )
    assert result.problems == [], "\n".join(said)
    assert struck.total() == faults
    assert result.facts["messages"] > 0
