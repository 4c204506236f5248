"""An APNs client before a fake provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tocsin.push.apns.client import ApnsProvider
from tocsin.push.apns.request import ProviderToken
from tocsin.push.fake.server import FakeApns
from tocsin.push.provider import PushOutcome, PushRequest, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
PAYLOAD: Final = b'{"aps":{"content-available":1},"notificationData":{"checkMessages":true}}'
LARGE_PAYLOAD: Final = b'{"aps":{"mutable-content":1},"notificationData":{"message":"%b"}}' % (b"x" * 4200)
PUSH: Final = PushRequest(
    b"abcd", PAYLOAD, Urgency.BACKGROUND, "4ab13bbb-9ab4-4b86-a2ac-9d3a7ab1f41d", 1_800_000_000
)


def push_to(device_token: bytes, payload: bytes = PAYLOAD) -> PushRequest:
    return PUSH._replace(device_token=device_token, contents=payload)


@dataclass(slots=True)
class Stage:
    apns: FakeApns
    provider: ApnsProvider

    async def push(self, device_token: bytes = b"abcd", payload: bytes = PAYLOAD) -> PushOutcome:
        return await self.provider.send(push_to(device_token, payload))

    async def push_all(self, *device_tokens: bytes) -> list[PushOutcome]:
        return await asyncio.gather(*(self.push(each) for each in device_tokens))


@asynccontextmanager
async def staged(apns: FakeApns, token: ProviderToken | None = None, **settings: Any) -> AsyncIterator[Stage]:
    endpoint = ApnsEndpoint(apns.host, apns.port, apns.ca_file)
    defaults = {"connect_timeout": 5.0, "request_timeout": 5.0}
    provider = ApnsProvider(endpoint, ApnsSettings(**{**defaults, **settings}), token)
    try:
        yield Stage(apns, provider)
    finally:
        await provider.close()
