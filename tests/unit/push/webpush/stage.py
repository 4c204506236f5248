"""A Web Push provider before a fake service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from tests.doubles.web_push_service import WebPushPhone, WebPushService
from tocsin.crypto.web_push import VapidKey
from tocsin.protocol.ntf.pushes import CheckMessagesPush, MessagePush, Push, VerificationPush
from tocsin.push.provider import PushOutcome, PushRequest, Urgency
from tocsin.push.settings import WebPushSettings
from tocsin.push.webpush.client import WebPushProvider

MESSAGES: Final = MessagePush(b"n" * 24, b"s" * 3088)
VERIFICATION: Final = VerificationPush(b"m" * 24, b"c" * 3088)
CHECK: Final = CheckMessagesPush()
NOW: Final = 1_000_000
KEY: Final = VapidKey.from_scalar(bytes(range(1, 33)))


def web_push_settings(**changes: Any) -> WebPushSettings:
    defaults: dict[str, Any] = {"enabled": True, "subject": "mailto:op@example.com", "timeout": 5.0}
    return WebPushSettings(**{**defaults, **changes})


def request_to(phone: WebPushPhone, push: Push = MESSAGES, urgency: Urgency = Urgency.ALERT) -> PushRequest:
    return PushRequest(phone.token, push, urgency, "4ab13bbb-9ab4-4b86-a2ac-9d3a7ab1f41d", NOW + 60)


@dataclass(slots=True)
class WebPushStage:
    service: WebPushService
    provider: WebPushProvider

    def phone(self, host: str = "push.test", path: str = "/up/a?x=1") -> WebPushPhone:
        return WebPushPhone(self.service, host, path)

    def send(self, request: PushRequest) -> asyncio.Future[PushOutcome]:
        outcome: asyncio.Future[PushOutcome] = asyncio.get_running_loop().create_future()
        self.provider.submit(request, outcome.set_result)
        assert not outcome.done()  # never before `submit` returns
        return outcome

    async def push(self, phone: WebPushPhone | None = None, push: Push = MESSAGES) -> PushOutcome:
        async with asyncio.timeout(10):
            return await self.send(request_to(phone or self.phone(), push))
