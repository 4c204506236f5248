"""A fake provider, and an APNs client that talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.push.stage import Stage, staged
from tocsin.push.fake.server import FakeApns, running_fake_apns


@pytest.fixture
async def apns(tmp_path: Path) -> AsyncIterator[FakeApns]:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    async with running_fake_apns(tmp_path) as running:
        yield running
        assert running.broken == []
    assert unhandled == []
    assert asyncio.all_tasks() == {asyncio.current_task()}  # nobody has left one behind


@pytest.fixture
async def stage(apns: FakeApns) -> AsyncIterator[Stage]:
    async with staged(apns) as stage:
        yield stage


@pytest.fixture
def stage_with(apns: FakeApns) -> Callable[..., AbstractAsyncContextManager[Stage]]:
    """A client with other settings."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Stage]:
        async with staged(apns, **settings) as stage:
            yield stage

    return opened
