"""Simulated phones: real agents that sleep until a push wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tocsin.agent import Agent, AgentSettings, ToFetch, Woken
from tocsin.agent.events import ConnectionReady, MessageArrived, NotificationsReady
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.push.fake.server import FakeApns
from tocsin.stores.agent_records import NotificationMode
from tocsin.stores.sqlite.agent_sqlite_store import opened_agent_store

NAMES: Final = ("Alice", "Bob", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi")
STEP_SECONDS: Final = 60.0
FIRST_QUEUE: Final = 1
"""Phones here never move a connection to another queue."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that a phone fetched after a push."""

    phone: str
    body: bytes


@dataclass
class Phone:
    name: str
    agent: Agent
    device_token: bytes
    apns: FakeApns
    arrived: Callable[[Arrival], None]
    chats: list[str] = field(default_factory=list)
    """Connections it can write to."""

    async def register(self) -> None:
        """Up to the verification, which a push brings."""
        token = DeviceToken(PushProvider.APNS_TEST, self.device_token)
        status = await self.agent.tokens.register(token, NotificationMode.INSTANT)
        while status.state is not TokenState.ACTIVE:
            push = await self.apns.next_push(self.device_token, STEP_SECONDS)
            await self.agent.wake(push.payload)
            status = (await self.agent.tokens.current()).status

    async def until(
        self, kind: type[ConnectionReady] | type[NotificationsReady], connections: Sequence[str]
    ) -> None:
        """Until this was told of all the connections."""
        missing = set(connections)
        async with asyncio.timeout(STEP_SECONDS):
            while missing:
                event = await self.agent.next_event()
                if isinstance(event, kind):
                    missing.discard(event.connection_id)

    async def sleep_and_wake(self) -> None:
        """As an app in the background: nothing is received but what a push tells of."""
        while True:
            try:
                push = await self.apns.next_push(self.device_token, STEP_SECONDS)
            except TimeoutError:
                continue
            with suppress(TocsinError):  # a router that is away: the next push tells of the messages again
                await self._woken_by(push.payload)

    async def _woken_by(self, payload: bytes) -> None:
        if not isinstance(await self.agent.wake(payload), Woken):
            return
        # All its few queues: times are whole seconds, so a push may not tell of a second message of a second.
        for fetched in await self.agent.fetch([ToFetch(chat, FIRST_QUEUE) for chat in self.chats]):
            for message in fetched.messages:
                if isinstance(message, MessageArrived):
                    self.arrived(Arrival(self.name, message.body))
            await self.agent.settled(*fetched.messages)

    async def send(self, connection_id: str, body: bytes) -> bool:
        """False if the router is away."""
        try:
            await self.agent.connections.send(connection_id, body)
        except TocsinError:
            return False
        return True


def phone_name(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else f"Phone {number + 1}"


@asynccontextmanager
async def phones(
    folder: Path,
    count: int,
    smp: RouterAddress,
    ntf: RouterAddress,
    apns: FakeApns,
    arrived: Callable[[Arrival], None],
) -> AsyncIterator[list[Phone]]:
    """Each with its store; those of an earlier start go on."""
    settings = AgentSettings(smp_routers=(smp,), ntf_routers=(ntf,))
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            name = phone_name(number)
            path = folder / f"{name.lower().replace(' ', '-')}.db"
            store = await stack.enter_async_context(opened_agent_store(path))
            agent = await stack.enter_async_context(Agent(store, settings))
            chats = [each.connection_id for each in await store.connections()]
            made.append(Phone(name, agent, f"phone-{number + 1}".encode(), apns, arrived, chats))
        yield made


async def introduce(people: Sequence[Phone]) -> None:
    """A connection between every two that have none yet: all of them at the first start."""
    if all(phone.chats for phone in people):
        return
    for number, phone in enumerate(people):
        for other in people[number + 1 :]:
            invitation = await phone.agent.connections.create()
            joined = await other.agent.connections.join(invitation.text)
            await phone.until(ConnectionReady, [invitation.connection_id])
            await other.until(ConnectionReady, [joined])
            phone.chats.append(invitation.connection_id)
            other.chats.append(joined)
