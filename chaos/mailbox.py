"""The push services' side: every push that a service accepted, for the phone that it is for, and for the recount."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import Final, NamedTuple

from tests.doubles.web_push_service import Received, WebPushService
from tocsin.push.fake.server import FakeApns

ENDPOINTS: Final = "/up/"
"""The beginning of the paths of Web Push endpoints; a device's name follows."""


class AcceptedPush(NamedTuple):
    device: bytes
    """The name of the device: the APNs device token, or the end of the endpoint's path."""
    payload: bytes
    by_web_push: bool


def phone_of(device: bytes) -> bytes:
    """Return the phone's part of a device's name, `phone-17-3` → `phone-17`: it stays when the device token changes."""
    return device.rpartition(b"-")[0]


class Mailbox:
    """Gives every push to its phone. `FakeApns.next_push` searches all pushes, which hundreds of phones cannot.

    A push that was on its way to a former device token or endpoint reaches the phone, too, as it does in the world.
    """

    def __init__(self, apns: FakeApns, web: WebPushService) -> None:
        self._apns = apns
        self._web = web
        self._pushes: dict[bytes, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self._read = 0
        self.accepted: Final[list[AcceptedPush]] = []
        """Everything that the services accepted, whoever reads it."""
        web.on_accepted = self._web_push

    def endpoint(self, device: bytes) -> str:
        return f"https://localhost:{self._web.port}{ENDPOINTS}{device.decode()}"

    async def next(self, device: bytes, seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._pushes[phone_of(device)].get()
        except TimeoutError:
            return None

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await self._apns.until(lambda: len(self._apns.pushes) > self._read)
            while self._read < len(self._apns.pushes):
                push = self._apns.pushes[self._read]
                self._read += 1
                self._add(AcceptedPush(push.device_token, push.payload, by_web_push=False))

    def _web_push(self, received: Received) -> None:
        device = received.path.removeprefix(ENDPOINTS).encode()
        self._add(AcceptedPush(device, received.body, by_web_push=True))

    def _add(self, push: AcceptedPush) -> None:
        self.accepted.append(push)
        self._pushes[phone_of(push.device)].put_nowait(push.payload)
