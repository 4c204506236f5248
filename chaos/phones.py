"""Phones: real agents that sleep until a push wakes them, and what they have sent and received."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tocsin.agent import Agent, ToFetch, Woken
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import NotificationMode
from tocsin.errors import TocsinError
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.push.fake.server import FakeApns

RETRY_SECONDS: Final = 0.2
FIRST_QUEUE: Final = 1


class Mailbox:
    """Gives every push to its device. `FakeApns.next_push` searches all pushes, which hundreds of phones cannot."""

    def __init__(self, apns: FakeApns) -> None:
        self._apns = apns
        self._pushes: dict[bytes, asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self.delivered = 0

    async def next(self, device_token: bytes, seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._pushes[device_token].get()
        except TimeoutError:
            return None

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await self._apns.until(lambda: len(self._apns.pushes) > self.delivered)
            while self.delivered < len(self._apns.pushes):
                push = self._apns.pushes[self.delivered]
                self.delivered += 1
                self._pushes[push.device_token].put_nowait(push.payload)


@dataclass
class Chat:
    """A connection of a phone, on which another phone writes to it."""

    connection_id: str
    sender: ChaosPhone
    at_sender: str
    """The connection's id at the sender."""
    tried: int = 0
    answered: set[int] = field(default_factory=set)
    """Numbers of messages whose SEND was answered."""
    arrived: set[int] = field(default_factory=set)

    @property
    def missing(self) -> set[int]:
        return self.answered - self.arrived


@dataclass
class ChaosPhone:
    number: int
    agent: Agent
    store: AgentStore
    mailbox: Mailbox
    device_token: bytes = b""
    chats: list[Chat] = field(default_factory=list)
    registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    pushes: int = 0
    had_no_token: bool = False
    """For a while messages came that no push could announce. In the end its user opens the app once."""
    _fetch: bool = False
    """A push came, and its messages are not fetched yet."""

    def __post_init__(self) -> None:
        self.change_device_token(0)

    def change_device_token(self, generation: int) -> None:
        self.device_token = b"phone-%d-%d" % (self.number, generation)

    def open_app(self) -> None:
        """Fetch messages without a push."""
        self._fetch = True

    async def live(self) -> None:
        """Sleep until a push comes. Fetch until it works."""
        while True:
            payload = await self.mailbox.next(self.device_token, RETRY_SECONDS if self._fetch else 1.0)
            if payload is not None:
                self.pushes += 1
                await self._wake(payload)
            if self._fetch:
                with suppress(TocsinError):
                    await self.look()
                    self._fetch = False

    async def _wake(self, payload: bytes) -> None:
        try:
            self._fetch |= isinstance(await self.agent.wake(payload), Woken)
        except TocsinError:  # a code whose answer was lost, or one of a former token
            return

    async def look(self) -> None:
        """Fetch the messages of all chats. Raises TocsinError."""
        by_id = {chat.connection_id: chat for chat in self.chats}
        for fetched in await self.agent.fetch([ToFetch(chat, FIRST_QUEUE) for chat in by_id]):
            for message in fetched.messages:
                if isinstance(message, MessageArrived):
                    by_id[message.connection_id].arrived.add(int(message.body))
            await self.agent.settled(*fetched.messages)
            if fetched.failure is not None:
                raise fetched.failure

    async def become_active(self) -> None:
        """Register as often as needed. `live` receives the codes."""
        async with self.registering:
            while not await self._is_active():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(RETRY_SECONDS)

    async def _is_active(self) -> bool:
        device = DeviceToken(PushProvider.APNS_TEST, self.device_token)
        try:
            status = await self.agent.tokens.register(device, NotificationMode.INSTANT)
            if status.state is not TokenState.ACTIVE:
                for _ in range(20):
                    await asyncio.sleep(RETRY_SECONDS / 4)
                    if (await self.agent.tokens.current()).status.state is TokenState.ACTIVE:
                        break
                else:
                    return False
            return (await self.agent.tokens.check()).state is TokenState.ACTIVE
        except TocsinError:
            return False

    async def send(self, chat: Chat) -> bool:
        """Write the next number into a chat of another phone. Returns whether the router answered."""
        chat.tried += 1
        number = chat.tried
        try:
            async with asyncio.timeout(5.0):
                await self.agent.connections.send(chat.at_sender, b"%d" % number)
        except (TocsinError, TimeoutError):
            return False
        chat.answered.add(number)
        return True

    async def until_ready(self, connection_id: str) -> None:
        while True:
            event = await self.agent.next_event()
            if isinstance(event, ConnectionReady) and event.connection_id == connection_id:
                return


async def connect(receiver: ChaosPhone, sender: ChaosPhone) -> None:
    """Make a connection on which `sender` writes to `receiver`."""
    invitation = await receiver.agent.connections.create()
    joined = await sender.agent.connections.join(invitation.text)
    await receiver.until_ready(invitation.connection_id)
    await sender.until_ready(joined)
    receiver.chats.append(Chat(invitation.connection_id, sender, joined))
