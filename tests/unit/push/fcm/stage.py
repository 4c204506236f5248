"""A fake of both Google endpoints, and the provider under test."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.doubles.smp_harness import START
from tocsin.protocol.ntf.pushes import CheckMessagesPush, MessagePush, Push, VerificationPush
from tocsin.push.fake.fcm import FakeFcm, running_fake_fcm
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.fcm.service_account import ServiceAccount
from tocsin.push.provider import PushOutcome, PushRequest, Urgency
from tocsin.push.settings import FcmSettings

REGISTRATION = b"cFMx8-vJQ9:APA91b" + b"x" * 120 + b"_-"
MESSAGE = MessagePush(b"n" * 24, b"s" * 3016)
VERIFICATION = VerificationPush(b"n" * 24, b"s" * 3016)
CHECK = CheckMessagesPush()
LIMIT_SECONDS = 30.0
"""For a push that would never be answered."""


@dataclass
class HeldTime:
    time: float = float(START)

    def __call__(self) -> float:
        return self.time


@dataclass
class FcmStage:
    fcm: FakeFcm
    provider: FcmProvider
    clock: HeldTime

    def request(self, push: Push = MESSAGE, token: bytes = REGISTRATION, ttl: int = 3600) -> PushRequest:
        expires_at = int(self.clock.time) + ttl
        return PushRequest(token, push, Urgency.ALERT, str(uuid.uuid4()), expires_at)

    async def push(self, push: Push = MESSAGE, token: bytes = REGISTRATION) -> PushOutcome:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.provider.send(self.request(push, token))

    async def message(self) -> dict[str, Any]:
        """The next message that reached a device."""
        found: dict[str, Any] = json.loads((await self.fcm.next_push()).payload)["message"]
        return found


def fcm_settings(fcm: FakeFcm, **changes: Any) -> FcmSettings:
    usual = FcmSettings(host=fcm.host, port=fcm.port, ca_file=fcm.ca_file, timeout=5.0)
    return replace(usual, **changes)


def account_of(fcm: FakeFcm) -> ServiceAccount:
    return ServiceAccount.from_json(json.dumps(fcm.account()).encode())


@asynccontextmanager
async def fcm_stage(folder: Path, **changes: Any) -> AsyncIterator[FcmStage]:
    clock = HeldTime()
    async with running_fake_fcm(folder, now=clock) as fcm:
        provider = FcmProvider(fcm_settings(fcm, **changes), account_of(fcm), clock)
        try:
            yield FcmStage(fcm, provider, clock)
        finally:
            await provider.close()
        assert fcm.broken == []
