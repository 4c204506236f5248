"""Simulated phones: real agents that sleep until a push wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tocsin.agent import Agent, AgentSettings, ToFetch, Woken
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived, NotificationsReady
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import NotificationMode
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY
from tocsin.push.fake.server import FakeApns, RecordedPush

NAMES: Final = ("Alice", "Bob", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi")
STEP_SECONDS: Final = 60.0
CHANGE_SECONDS: Final = 5.0
FIRST_QUEUE: Final = 1
"""Phones here never move a connection to another queue."""
CHATS_FILE: Final = "chats.json"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that a phone fetched after a push."""

    phone: str
    sender: str | None
    """None for a chat of an older version, which did not record the peer."""
    body: bytes
    message_id: bytes
    sent_at: int
    mention: bool = False


class Observer(Protocol):
    """Receives what phones do."""

    def arrived(self, arrival: Arrival) -> None: ...

    async def woken(self, phone: Phone, push: RecordedPush) -> None:
        """Called before the phone fetches anything."""


@dataclass
class Phone:
    name: str
    agent: Agent
    store: AgentStore
    device_token: bytes
    apns: FakeApns
    observer: Observer
    chats: dict[str, str | None] = field(default_factory=dict)
    """Connections that it can write to, and the name of the peer."""
    wanted: dict[str, MinimumPriority] = field(default_factory=dict)
    """The lowest priority of a connection's messages that wake it."""
    online: asyncio.Event = field(default_factory=asyncio.Event)
    _fetching: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def register(self) -> None:
        """Register the device token and verify it with the code from a push."""
        token = DeviceToken(PushProvider.APNS_TEST, self.device_token)
        status = await self.agent.tokens.register(token, NotificationMode.INSTANT)
        while status.state is not TokenState.ACTIVE:
            push = await self.apns.next_push(self.device_token, STEP_SECONDS)
            await self.agent.wake(push.payload)
            status = (await self.agent.tokens.current()).status

    async def until(
        self, kind: type[ConnectionReady] | type[NotificationsReady], connections: Sequence[str]
    ) -> None:
        """Wait until this event came for all the connections."""
        missing = set(connections)
        async with asyncio.timeout(STEP_SECONDS):
            while missing:
                event = await self.agent.next_event()
                if isinstance(event, kind):
                    missing.discard(event.connection_id)

    def chat_with(self, name: str) -> str | None:
        return next((chat for chat, peer in self.chats.items() if peer == name), None)

    async def sleep_and_wake(self) -> None:
        """Behave as an app in the background: fetch only when a push wakes it, and never while offline."""
        while True:
            await self.online.wait()
            try:
                push = await self.apns.next_push(self.device_token, STEP_SECONDS)
            except TimeoutError:
                continue
            await self.online.wait()
            with suppress(TocsinError):  # a router is down: the next push announces the messages again
                await self._woken_by(push)

    async def _woken_by(self, push: RecordedPush) -> None:
        await self.observer.woken(self, push)
        if isinstance(await self.agent.wake(push.payload), Woken):
            await self.look()

    async def look(self) -> None:
        """Fetch all its few queues: times are whole seconds, so a push may hide a second message of the same second."""
        async with self._fetching:
            for fetched in await self.agent.fetch([ToFetch(chat, FIRST_QUEUE) for chat in self.chats]):
                for message in fetched.messages:
                    if isinstance(message, MessageArrived):
                        self.observer.arrived(self._arrival(message))
                await self.agent.settled(*fetched.messages)

    def _arrival(self, message: MessageArrived) -> Arrival:
        sender = self.chats.get(message.connection_id)
        return Arrival(
            self.name, sender, message.body, message.message_id, message.sent_at, message.is_mention
        )

    async def send(self, connection_id: str, body: bytes, *, mention: bool = False) -> TocsinError | None:
        """The error if the router does not answer."""
        try:
            await self.agent.connections.send(
                connection_id, body, priority=MENTION_PRIORITY if mention else 1
            )
        except TocsinError as error:
            return error
        return None

    async def want(self, connection_id: str, minimum: MinimumPriority) -> None:
        """Returns when the routers know, or after a time limit; then they learn it later. Raises AgentError."""
        await self.agent.connections.set_notifications(connection_id, minimum)
        self.wanted[connection_id] = minimum
        with suppress(TimeoutError):
            async with asyncio.timeout(CHANGE_SECONDS):
                while not self.agent.at_rest:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.02)


def phone_name(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else f"Phone {number + 1}"


@asynccontextmanager
async def phones(
    folder: Path,
    count: int,
    smp: RouterAddress,
    ntf: RouterAddress,
    apns: FakeApns,
    observer: Observer,
) -> AsyncIterator[list[Phone]]:
    """Open each phone with its store; phones of an earlier start continue."""
    # For viewers: use a router as soon as it is back, and mute at once instead of hiding among other changes.
    settings = AgentSettings(smp_routers=(smp,), ntf_routers=(ntf,), priority_delay=0.0, remember_failure=0.0)
    peers = _peers(folder)
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            name = phone_name(number)
            path = folder / f"{name.lower().replace(' ', '-')}.db"
            store = await stack.enter_async_context(opened_agent_store(path))
            agent = await stack.enter_async_context(Agent(store, settings))
            phone = Phone(name, agent, store, f"phone-{number + 1}".encode(), apns, observer)
            for each in await store.connections():
                phone.chats[each.connection_id] = peers.get(each.connection_id)
                phone.wanted[each.connection_id] = each.wanted
            phone.online.set()
            made.append(phone)
        yield made


def _peers(folder: Path) -> Mapping[str, str]:
    try:
        return msgspec.json.decode((folder / CHATS_FILE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}


async def introduce(people: Sequence[Phone], folder: Path) -> list[Phone]:
    """Connect every two phones that have no chat yet, and return the phones with new chats."""
    peers = dict(_peers(folder))
    new: dict[str, Phone] = {}
    for number, phone in enumerate(people):
        for other in people[number + 1 :]:
            if phone.chat_with(other.name) is not None:
                continue
            invitation = await phone.agent.connections.create()
            joined = await other.agent.connections.join(invitation.text)
            await phone.until(ConnectionReady, [invitation.connection_id])
            await other.until(ConnectionReady, [joined])
            for one, chat, peer in ((phone, invitation.connection_id, other), (other, joined, phone)):
                one.chats[chat] = peers[chat] = peer.name
                one.wanted[chat] = MinimumPriority.ALL
                new[one.name] = one
    (folder / CHATS_FILE).write_bytes(msgspec.json.encode(peers))
    return list(new.values())
