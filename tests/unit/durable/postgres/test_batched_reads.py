"""Reads that share statements: what they see, and whom a failure concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tocsin.durable.postgres.batched_reads import MOST_KEYS, BatchedReads
from tocsin.errors import StoreError, StoreUnavailable


class Table:
    """Rows that can change, and statements that take as long as a test wants."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {number: f"row {number}" for number in range(0, 2000, 2)}
        self.statements: list[list[int]] = []
        self.gate: asyncio.Event | None = None
        self.failures: list[Exception] = []
        self.reads = BatchedReads(self._find)

    async def _find(self, keys: Sequence[int]) -> dict[int, str]:
        self.statements.append(list(keys))
        found = {key: self.rows[key] for key in keys if key in self.rows}
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        return found

    def ask(self, *keys: int) -> list[asyncio.Task[str | None]]:
        return [asyncio.create_task(self.reads.row(key)) for key in keys]

    async def begun(self, statements: int) -> None:
        while len(self.statements) < statements:  # noqa: ASYNC110 - the tasks only need turns of the loop
            await asyncio.sleep(0)


async def test_reads_at_the_same_time_share_a_statement_and_each_gets_its_row() -> None:
    table = Table()
    assert await asyncio.gather(*table.ask(4, 5, 4, 6)) == ["row 4", None, "row 4", "row 6"]
    assert table.statements == [[4, 5, 6]]


async def test_a_lone_read_waits_for_nobody() -> None:
    table = Table()
    assert [await table.reads.row(key) for key in (2, 3)] == ["row 2", None]
    assert table.statements == [[2], [3]]


async def test_a_read_sees_what_was_committed_before_it_was_asked_for() -> None:
    table = Table()
    table.gate = asyncio.Event()
    early = table.ask(4)
    await table.begun(1)
    table.rows[4] = "changed"
    late = table.ask(4, 8)
    table.gate.set()
    assert await asyncio.gather(*early, *late) == ["row 4", "changed", "row 8"]
    assert table.statements == [[4], [4, 8]]


async def test_a_failure_concerns_one_statement() -> None:
    table = Table()
    table.failures = [StoreError("no")]
    outcomes = await asyncio.gather(*table.ask(2, 4), return_exceptions=True)
    assert [type(each) for each in outcomes] == [StoreError, StoreError]
    assert await table.reads.row(2) == "row 2"


async def test_whoever_leaves_takes_nobody_along() -> None:
    table = Table()
    table.gate = asyncio.Event()
    first, second = table.ask(2, 4)
    await table.begun(1)
    third, fourth = table.ask(6, 8)
    await asyncio.sleep(0)
    first.cancel()
    third.cancel()
    await asyncio.sleep(0)
    table.gate.set()
    assert (await second, await fourth) == ("row 4", "row 8")
    assert table.statements == [[2, 4], [8]]


async def test_a_statement_has_a_limit() -> None:
    table = Table()
    rows = await asyncio.gather(*table.ask(*range(2 * MOST_KEYS + 1)))
    assert rows == [table.rows.get(key) for key in range(2 * MOST_KEYS + 1)]
    assert [len(keys) for keys in table.statements] == [MOST_KEYS, MOST_KEYS, 1]


async def test_a_close_fails_what_is_under_way() -> None:
    table = Table()
    table.gate = asyncio.Event()
    early = table.ask(2)
    await table.begun(1)
    late = table.ask(4)
    await asyncio.sleep(0)
    await table.reads.close()
    for each in (*early, *late):
        with pytest.raises(StoreUnavailable):
            await each


async def test_a_close_fails_what_has_not_begun() -> None:
    table = Table()
    [asked] = table.ask(2)
    await asyncio.sleep(0)
    assert not table.statements
    await table.reads.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(asked, 5)
