"""Phones: real agents that sleep until a push wakes them, and what they have sent and received."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from chaos.mailbox import AcceptedPush, Mailbox
from tocsin.agent import Agent, ToFetch, Woken
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import NotificationMode
from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.crypto.web_push import WebPushSecret
from tocsin.errors import BadBox, TocsinError
from tocsin.protocol.agent.push_contents import open_notifications
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import MessagePush, Push, PushedNotification, parse_push_json
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content

RETRY_SECONDS: Final = 0.2
FIRST_QUEUE: Final = 1


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
    by_web_push: bool = False
    """Its pushes come through a Web Push service, not through APNs."""
    device: bytes = b""
    """The name of its device at the push service."""
    chats: list[Chat] = field(default_factory=list)
    registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    pushes: int = 0
    had_no_token: bool = False
    """For a while messages came that no push could announce. In the end its user opens the app once."""
    _fetch: bool = False
    """A push came, and its messages are not fetched yet."""
    _token_keys: dict[bytes, BoxKey] = field(default_factory=dict)
    """Of all tokens that it ever had, by their secrets."""
    _endpoint_secrets: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.change_device_token(0)

    def change_device_token(self, generation: int) -> None:
        self.device = b"phone-%d-%d" % (self.number, generation)

    @property
    def endpoint(self) -> str:
        return self.mailbox.endpoint(self.device)

    def open_app(self) -> None:
        """Fetch messages without a push."""
        self._fetch = True

    async def live(self) -> None:
        """Sleep until a push comes. Fetch until it works."""
        while True:
            payload = await self.mailbox.next(self.device, RETRY_SECONDS if self._fetch else 1.0)
            if payload is not None:
                self.pushes += 1
                await self._wake(payload)
            if self._fetch:
                with suppress(TocsinError):
                    await self.look()
                    self._fetch = False

    async def _wake(self, payload: bytes) -> None:
        await self.keep_secrets()
        wake = self.agent.wake_by_web_push if self.by_web_push else self.agent.wake
        try:
            self._fetch |= isinstance(await wake(payload), Woken)
        except TocsinError:  # a code whose answer was lost, or one of a former token
            return
        finally:
            await self.keep_secrets()  # the answer to TNEW may have come after the push

    async def keep_secrets(self) -> None:
        """Keep what opens pushes, also those to tokens and endpoints that the agent has forgotten by the end."""
        token = await self.store.token()
        if token is not None and token.secret is not None:
            self._token_keys.setdefault(token.secret, box_key(token.secret))
        self._endpoint_secrets.update([each.secret for each in await self.store.endpoint_secrets()])

    def notifications(self, push: AcceptedPush) -> list[PushedNotification]:
        """Return what a push says, without the agent. Raises BadBox if it is not for this phone."""
        content = self._content(push)
        if not isinstance(content, MessagePush):
            return []
        for key in self._token_keys.values():
            with suppress(BadBox):
                found = open_notifications(key, content)
                return [each for each in found if isinstance(each, PushedNotification)]
        raise BadBox(f"a push to phone {self.number} that none of its tokens opens")

    def _content(self, push: AcceptedPush) -> Push:
        if not push.by_web_push:
            return parse_push_json(push.payload)
        for secret in self._endpoint_secrets:
            with suppress(BadBox):
                return parse_web_push_content(WebPushSecret(secret).open(push.payload))
        raise BadBox(f"a Web Push to phone {self.number} that none of its endpoints opens")

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
        try:
            status = await self._register()
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

    async def _register(self) -> TokenStatus:
        if self.by_web_push:
            return await self.agent.tokens.register_endpoint(self.endpoint, NotificationMode.INSTANT)
        device = DeviceToken(PushProvider.APNS_TEST, self.device)
        return await self.agent.tokens.register(device, NotificationMode.INSTANT)

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
