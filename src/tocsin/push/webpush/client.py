"""The client of Web Push services, which devices name (RFC 8030).

Theory of operation. Every host has a lane (`host_lane`), so that a slow or hostile one does not delay the others. The
number of lanes is limited, and an idle one makes room for another. Hosts that have not accepted a push yet get at most
half of them, so that a user who names thousands of slow hosts leaves the other half to those that work. Pushes that
find no lane are tried again later.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tocsin.crypto.web_push import VapidKey
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress
from tocsin.push.provider import PushOutcome, PushRefused, PushRequest, TokenInvalid
from tocsin.push.settings import WebPushSettings
from tocsin.push.webpush.host_lane import (
    BUSY,
    CLOSED,
    COME_BACK_SECONDS,
    CONNECTION,
    HostLane,
    Reputations,
    Sending,
    ServiceDialer,
    later,
)
from tocsin.push.webpush.request import pushed_content
from tocsin.transport.tls_stream import FindAddresses

ROOM: Final = 1000
"""The constant room: pushes that a service has no room for are answered at once and wait in the delivery."""
MOST_ADDRESSES: Final = 4096
"""Device tokens whose parsed form is kept."""
CLOSE_SECONDS: Final = 5.0
NOT_A_PUSH: Final = "not_a_push"

logger = logging.getLogger(__name__)


class WebPushProvider:
    """Implements `push.provider.Provider`."""

    room = ROOM

    def __init__(
        self,
        settings: WebPushSettings,
        key: VapidKey,
        find: FindAddresses,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`find` resolves hosts and decides which addresses may be dialled.

        Raises OSError if the CA file is unreadable.
        """
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._reputations = Reputations()
        self._lanes: dict[str, HostLane] = {}
        """Lanes by origin, the least recently used first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._key = key
        self._now = now
        # Loading a device's point costs a quarter of a push.
        self._parse = lru_cache(MOST_ADDRESSES)(WebPushAddress.parse)
        # Connecting may take half of the time, the answer the other half.
        self._dialer = ServiceDialer(tls_context(settings.ca_file), find, settings.timeout / 2)

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self._lanes.values())

    @property
    def hosts(self) -> int:
        """The number of hosts with a lane."""
        return len(self._lanes)

    async def wait_for_room(self) -> None:
        pass

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        refusal = self._submitted(push, answered)
        if refusal is not None:
            self._loop.call_soon(answered, refusal)

    async def close(self) -> None:
        self._closed = True
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.drain()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        for lane in lanes:
            lane.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _submitted(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> PushOutcome | None:
        """Give the push to a lane. Returns None, or the outcome if there is one at once."""
        if self._closed:
            return later(CLOSED)
        try:
            address = self._parse(push.device_token)
        except DecodeError:
            return TokenInvalid(InvalidReason.BAD)
        try:
            content = pushed_content(push.contents, address.form)
        except DecodeError:
            return PushRefused(NOT_A_PUSH)
        now = self._loop.time()
        pause = self._reputations.pause(address.origin, now)
        if pause is not None:
            return later(CONNECTION, pause)
        lane = self._lane(address)
        if lane is None:
            return later(BUSY, COME_BACK_SECONDS)
        deadline = now + self._settings.timeout
        lane.submit(Sending(address, content, push.urgency, push.expires_at, answered, deadline))
        return None

    def _lane(self, address: WebPushAddress) -> HostLane | None:
        """Return the lane of a host, a new one if needed, or None if all are in use."""
        origin = address.origin
        lane = self._lanes.pop(origin, None)
        if lane is None:
            if not self._make_room(self._reputations.is_proven(origin)):
                return None
            lane = HostLane(
                address,
                self._settings,
                self._key,
                self._dialer,
                self._reputations,
                spawn=self._spawn,
                ended=self._ended,
                now=self._now,
            )
        self._lanes[origin] = lane
        return lane

    def _make_room(self, proven: bool) -> bool:
        """Whether there is room for another lane. An idle one may be closed for it."""
        most = self._settings.hosts
        rivals = list(self._lanes.values())
        if not proven:
            newcomers = [each for each in rivals if not self._reputations.is_proven(each.origin)]
            if len(newcomers) >= max(1, most // 2):
                rivals, most = newcomers, len(newcomers)
        if len(rivals) < most:
            return True
        for lane in rivals:
            if lane.is_idle:
                del self._lanes[lane.origin]
                lane.stop()
                return True
        return False

    def _ended(self, lane: HostLane) -> None:
        if self._lanes.get(lane.origin) is lane:
            del self._lanes[lane.origin]

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that verifies names and certificates, with the file's CAs and the system's. Raises OSError."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(str(ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context
