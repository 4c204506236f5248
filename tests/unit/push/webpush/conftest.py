"""A Web Push service, and a provider that talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.web_push_service import WebPushService
from tests.unit.push.webpush.stage import KEY, NOW, WebPushStage, web_push_settings
from tocsin.push.webpush.client import WebPushProvider
from tocsin.transport.tls_stream import FindAddresses


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[WebPushService]:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    async with WebPushService(tmp_path).running() as running:
        yield running
    assert unhandled == []


@pytest.fixture
def stage_with(service: WebPushService) -> Callable[..., AbstractAsyncContextManager[WebPushStage]]:
    """A provider with other settings."""

    @asynccontextmanager
    async def opened(find: FindAddresses | None = None, **settings: Any) -> AsyncIterator[WebPushStage]:
        before = asyncio.all_tasks()
        provider = WebPushProvider(
            web_push_settings(ca_file=service.ca_file, **settings), KEY, find or service.find, lambda: NOW
        )
        try:
            yield WebPushStage(service, provider)
        finally:
            await provider.close()
        assert not [task for task in asyncio.all_tasks() - before if "HostLane" in repr(task)]

    return opened


@pytest.fixture
async def stage(
    stage_with: Callable[..., AbstractAsyncContextManager[WebPushStage]],
) -> AsyncIterator[WebPushStage]:
    async with stage_with() as stage:
        yield stage
