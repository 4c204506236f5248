"""A push provider inside the test: takes every push and answers as it is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.push.provider import Accepted, PushOutcome, PushRequest

PATIENCE = 5.0
QUIET = 0.3


class RecordingProvider:
    """Implements `push.provider.Provider`."""

    def __init__(self) -> None:
        self.room = 100
        self.answers: deque[PushOutcome] = deque()
        """For the next pushes; then all are accepted."""
        self.held: list[Callable[[PushOutcome], None]] | None = None
        """Pushes wait here for `release`, if it is a list."""
        self.sent: list[PushRequest] = []
        self._arrived: dict[bytes, asyncio.Queue[PushRequest]] = {}

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        self.sent.append(push)
        self._queue(push.device_token).put_nowait(push)
        if self.held is not None:
            self.held.append(answered)
        else:
            outcome = self.answers.popleft() if self.answers else Accepted()
            asyncio.get_running_loop().call_soon(answered, outcome)

    def hold(self) -> None:
        """From now on nothing is answered."""
        self.held = []

    def release(self, outcome: PushOutcome | None = None) -> None:
        """Answers what waits, and what comes from now on at once."""
        held, self.held = self.held or [], None
        for answered in held:
            answered(outcome or Accepted())

    async def wait_for_room(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def next_request(self, device_token: bytes) -> PushRequest:
        async with asyncio.timeout(PATIENCE):
            return await self._queue(device_token).get()

    async def next_push(self, device_token: bytes) -> Push:
        return parse_push_json((await self.next_request(device_token)).payload)

    async def nothing(self, device_token: bytes) -> None:
        """Nothing is there for the token and nothing comes."""
        try:
            async with asyncio.timeout(QUIET):
                push = await self._queue(device_token).get()
        except TimeoutError:
            return
        raise AssertionError(f"{push} came")

    def _queue(self, device_token: bytes) -> asyncio.Queue[PushRequest]:
        return self._arrived.setdefault(device_token, asyncio.Queue())
