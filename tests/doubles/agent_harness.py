"""Agents with their files, next to real routers on real TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.doubles.kept_ports import KeptPort
from tests.doubles.ntf_harness import TEST_PROVIDER, NtfHarness, ntf_router
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import PATIENCE, START, SmpHarness
from tocsin.agent import Agent, AgentSettings, Fetched, ToFetch, TokenVerified, Woken
from tocsin.agent.runtime.events import AgentEvent, AgentTrouble, ConnectionReady, MessageEvent
from tocsin.agent.runtime.router_clients import Connect
from tocsin.agent.store.records import NotificationMode
from tocsin.agent.store.sqlite.store import AgentSqliteStore, opened_agent_store
from tocsin.clients import Backoff, ClientSettings, NtfClient, SmpClient
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.transport.client_sessions import DialSettings
from tocsin.wire.versions import VersionRange

E = TypeVar("E")

INSTANT = NotificationMode.INSTANT
PERIODIC = NotificationMode.PERIODIC


def smp_address(router: SmpHarness | RouterLocation) -> RouterAddress:
    return RouterAddress(Scheme.SMP, router if isinstance(router, RouterLocation) else router.location)


def ntf_address(router: NtfHarness | RouterLocation) -> RouterAddress:
    return RouterAddress(Scheme.NTF, router if isinstance(router, RouterLocation) else router.location)


def agent_settings(
    smp: Sequence[SmpHarness | RouterLocation], ntf: Sequence[NtfHarness | RouterLocation], **changes: Any
) -> AgentSettings:
    """Short intervals; what a test does not wait for stays long. The usual protocol, unless `direct` is on."""
    settings = AgentSettings(
        direct=False,
        smp_routers=tuple(smp_address(router) for router in smp),
        ntf_routers=tuple(ntf_address(router) for router in ntf),
        retries=Backoff(initial=0.02, increase_after=0.1, maximum=0.1),
        pending_packets=Backoff(initial=0.02, increase_after=0.1, maximum=0.1),
        priority_delay=0.0,
        remember_failure=0.01,
        clients=ClientSettings(
            dial=DialSettings(connect_timeout=PATIENCE), response_timeout=PATIENCE, close_seconds=0.5
        ),
    )
    return replace(settings, **changes)


@dataclass(frozen=True)
class ClientVersions:
    """What an agent offers to routers; None is all that we support."""

    smp: VersionRange | None = None
    ntf_alpn: tuple[str, ...] | None = None
    """Empty: no ALPN, so that NTF routers speak v1."""

    def connect_smp(self, settings: ClientSettings) -> Connect[SmpClient]:
        dial = replace(settings.dial, versions=self.smp)
        return lambda where: SmpClient.connect(where, replace(settings, dial=dial))

    def connect_ntf(self, settings: ClientSettings) -> Connect[NtfClient]:
        dial = replace(settings.dial, alpn=self.ntf_alpn)
        return lambda where: NtfClient.connect(where, replace(settings, dial=dial))


CURRENT_CLIENT = ClientVersions()
PREVIOUS_CLIENT = ClientVersions(VersionRange(6, 16), ())
"""Before credentials of notifiers came with NEW, and before batches of NTF commands."""


class HeldAgentClock:
    """Long waits end when the time is moved; short ones, those of retries, are real."""

    def __init__(self) -> None:
        self.time = float(START)
        self._moved = asyncio.Condition()

    def exactly(self) -> float:
        return self.time

    async def wait(self, seconds: float) -> None:
        if seconds < 10:
            await asyncio.sleep(seconds)
            return
        until = self.time + seconds
        async with self._moved:
            await self._moved.wait_for(lambda: self.time >= until)

    async def move(self, seconds: float) -> None:
        async with self._moved:
            self.time += seconds
            self._moved.notify_all()


@dataclass
class RunningAgent:
    agent: Agent
    store: AgentSqliteStore
    provider: RecordingProvider
    device_token: bytes
    events: list[AgentEvent] = field(default_factory=list)
    """All that were read so far."""
    _aside: list[AgentEvent] = field(default_factory=list)

    @property
    def device(self) -> DeviceToken:
        return DeviceToken(TEST_PROVIDER, self.device_token)

    async def event(self, kind: type[E], matching: Callable[[E], bool] = lambda _: True) -> E:
        """The next one of this kind; those before it are put aside, for later calls."""
        for event in self._aside:
            if isinstance(event, kind) and matching(event):
                self._aside.remove(event)
                return event
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    event = await self.agent.next_event()
                    self.events.append(event)
                    if isinstance(event, MessageEvent):
                        await self.agent.settled(event)
                    if isinstance(event, kind) and matching(event):
                        return event
                    self._aside.append(event)
        except TimeoutError:
            raise AssertionError(f"no {kind.__name__}, but {self._aside}") from None

    async def push(self) -> bytes:
        """The payload of the next push to the device."""
        return (await self.provider.next_request(self.device_token)).payload

    async def activate(self, mode: NotificationMode = INSTANT) -> None:
        status = await self.agent.tokens.register(self.device, mode)
        assert status.state is TokenState.REGISTERED, status
        await self.verify()

    async def verify(self) -> None:
        """With the next push."""
        verified = await self.agent.wake(await self.push())
        assert isinstance(verified, TokenVerified), verified
        assert verified.status.state is TokenState.ACTIVE, verified

    async def woken(self) -> Woken:
        """By the next push, which must be one of messages."""
        woken = await self.agent.wake(await self.push())
        assert isinstance(woken, Woken), woken
        return woken

    async def fetched(self) -> list[Fetched]:
        """What the next push leads to."""
        return await self.fetch((await self.woken()).to_fetch)

    async def fetch(self, items: Sequence[ToFetch]) -> list[Fetched]:
        """And settled."""
        fetched = await self.agent.fetch(items)
        await self.agent.settled(*(message for each in fetched for message in each.messages))
        return fetched

    async def at_rest(self) -> None:
        """All that was asked for has been done."""
        async with asyncio.timeout(PATIENCE):
            await self.agent.until_at_rest()

    async def subscribed(self, count: int) -> None:
        """So many rows have a subscription at the NTF router, and there are no others."""
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = await self.store.subscriptions()
                if len(rows) == count and all(row.subscription_id and row.status for row in rows):
                    return
                await asyncio.sleep(0.005)

    def no_trouble(self) -> None:
        assert not [event for event in self.events if isinstance(event, AgentTrouble)]


@asynccontextmanager
async def running_agent(
    path: Path,
    smp: Sequence[SmpHarness | RouterLocation],
    ntf: Sequence[NtfHarness | RouterLocation],
    provider: RecordingProvider,
    *,
    device_token: bytes | None = None,
    clock: WaitingClock | None = None,
    clients_of: ClientVersions = CURRENT_CLIENT,
    **changes: Any,
) -> AsyncIterator[RunningAgent]:
    """With the file of this path; the same file again is the same agent, started again."""
    token = device_token or path.name.encode().hex().encode()
    settings = agent_settings(smp, ntf, **changes)
    async with (
        opened_agent_store(path, scrypt_n=2) as store,
        Agent(
            store,
            settings,
            clock=clock,
            connect_smp=clients_of.connect_smp(settings.dialling),
            connect_ntf=clients_of.connect_ntf(settings.dialling),
        ) as agent,
    ):
        yield RunningAgent(agent, store, provider, token)


@dataclass
class NtfPlace:
    """An NTF router that stops and starts again at the same address, with or without its memory."""

    store: NtfMemoryStore = field(default_factory=NtfMemoryStore)
    provider: RecordingProvider = field(default_factory=RecordingProvider)
    location: RouterLocation | None = None
    _kept: KeptPort = field(default_factory=KeptPort)

    @asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[NtfHarness]:
        port = 0 if self.location is None else int(self.location.port)
        try:
            async with ntf_router(self.store, provider=self.provider, ports=(port,), **changes) as ntf:
                self.location = ntf.location
                self._kept.release()
                yield ntf
        finally:
            if self.location is not None:
                self._kept.keep(int(self.location.port))

    @property
    def known(self) -> RouterLocation:
        """Where it was when it last ran."""
        assert self.location is not None
        return self.location

    def forget_everything(self) -> None:
        """As after the loss of its database."""
        self.store = NtfMemoryStore()


async def connected(alice: RunningAgent, bob: RunningAgent) -> tuple[str, str]:
    """A connection of the two; its ids at each."""
    invitation = await alice.agent.connections.create()
    joined = await bob.agent.connections.join(invitation.text)
    await alice.event(ConnectionReady, lambda event: event.connection_id == invitation.connection_id)
    await bob.event(ConnectionReady, lambda event: event.connection_id == joined)
    return invitation.connection_id, joined
