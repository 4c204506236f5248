"""SIGKILL at random moments: what was returned is there, and received = accepted + superseded + failed + pending."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tocsin.ntf_router.store.logs.store_files import open_ntf_store

REPOSITORY = Path(__file__).parents[5]


def told_until_killed(folder: Path, seed: int, lines: int) -> list[list[str]]:
    command = [
        sys.executable,
        "-m",
        "tests.unit.ntf_router.store.logs.random_changes",
        str(folder),
        str(seed),
    ]
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line.split())
            if len(told) == lines:
                process.kill()  # what is in the pipe still comes
    assert process.returncode == -9, "it ended by itself"
    return told


async def test_killed_at_random_moments_it_loses_nothing_that_was_returned(tmp_path: Path) -> None:
    chance = random.Random(1)
    tokens: set[str] = set()
    came: set[str] = set()
    received = accepted = superseded = 0
    for seed in range(8):
        told = told_until_killed(tmp_path, seed, chance.randrange(20, 1500))
        store = open_ntf_store(tmp_path)
        there = {record.token_id.hex() for record in store.all_tokens()}
        for line in told:
            match line:
                case ["token", token_id]:
                    tokens.add(token_id)
                case ["gone", token_id]:
                    tokens.discard(token_id)
                    assert token_id not in there
                case ["came", nonce, before]:
                    received += 1
                    superseded += before != "-"
                    came.add(nonce)
                case ["settled", nonce]:
                    accepted += nonce in came
        # A token whose removal was under way may be gone already: one for each of four workers.
        assert len(tokens - there) <= 4
        tokens &= there
        found = await store.accounting()
        assert found.difference == 0
        # Of each worker one change may be on disk that it could not tell of any more.
        assert received <= found.received <= received + 4
        assert accepted <= found.accepted <= accepted + 4
        assert superseded <= found.superseded <= superseded + 4
        received, accepted, superseded = found.received, found.accepted, found.superseded
        await store.close()
    assert tokens
    assert received > 100
