"""The short version of `make chaos`: a few faults, few phones, the same judgement."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from chaos.__main__ import run_chaos
from tests.doubles.spark_desk import SparkDesk

LIGHT = [
    "cut_connections",
    "half_close",
    "delay",
    "provider_trouble",
    "web_push_trouble",
    "change_device_tokens",
    "jump_clock",
]
"""After these no notification may have come twice or without a token."""
HEAVY = [
    "invalidate_tokens",
    "kill_smp",
    "kill_ntf",
    "fill_disk",
    "kill_smp_while_its_disk_is_full",
    "restart_database",
    "read_only_database",
    "exhaust_signatures",
    "kill_ntf_while_the_database_is_frozen",
    "delete_tokens",
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kinds", [LIGHT, HEAVY], ids=["light", "heavy"])
async def test_every_notification_has_an_outcome(tmp_path: Path, kinds: list[str], desk: SparkDesk) -> None:
    said: list[str] = []
    result, struck = await run_chaos(
        tmp_path,
        faults=len(kinds),
        phones=6,
        seed="continuous",
        only=kinds,
        say=said.append,
        spark=nullcontext(desk),
    )
    assert result.problems == [], "\n".join(said)
    assert struck == Counter(kinds)
    assert result.facts["messages"] > 0
