"""Time-outs in tasks that have survived a task group, with any Python that we promise."""

from __future__ import annotations

import asyncio

import pytest

import tocsin  # noqa: F401 - mends older versions


async def fail() -> None:
    await asyncio.sleep(0)
    raise OSError


async def survived() -> None:
    """A task group whose task fails when the group waits for it."""
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())


async def test_a_timeout_is_a_timeout_after_a_group_that_failed() -> None:
    await survived()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_a_task_that_is_cancelled_within_a_timeout_ends() -> None:
    async def run() -> None:
        await survived()
        async with asyncio.timeout(60):
            began.set()
            await asyncio.Event().wait()

    began = asyncio.Event()
    task = asyncio.create_task(run())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
