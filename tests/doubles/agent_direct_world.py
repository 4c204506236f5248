"""Agents, an SMP router and an NTF router of which each may know direct notifications or not, and a fake APNs.

What routers and agents know outlives them: they stop and start again at the same addresses, with or without it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.doubles.agent_harness import RunningAgent, running_agent
from tests.doubles.agent_world import ApnsPushes
from tests.doubles.ntf_harness import HeldFineClock, NtfHarness
from tests.doubles.ntf_world import SmpPlace, World, kept
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import direct_settings
from tests.doubles.smp_harness import PATIENCE, START, SmpHarness
from tocsin.agent import Woken
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived
from tocsin.agent.store.records import ReceiveQueue
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import unseal_meta
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.smp_router.settings.settings import SmpDirectSettings


class MovableClock:
    """Goes as real time does, from the time of the routers in tests, and jumps when it is moved."""

    def __init__(self) -> None:
        self._base = START - time.monotonic()
        self._moved = asyncio.Condition()

    def exactly(self) -> float:
        return self._base + time.monotonic()

    async def wait(self, seconds: float) -> None:
        if seconds < 10:
            await asyncio.sleep(seconds)
            return
        until = self.exactly() + seconds
        async with self._moved:
            await self._moved.wait_for(lambda: self.exactly() >= until)

    async def move(self, seconds: float) -> None:
        async with self._moved:
            self._base += seconds
            self._moved.notify_all()


@dataclass
class DirectWorld:
    """`smp` and `ntf` are where the routers run, or last ran."""

    path: Path
    apns: FakeApns
    clock: MovableClock = field(default_factory=MovableClock)
    smp_place: SmpPlace = field(default_factory=SmpPlace)
    ntf_store: NtfMemoryStore = field(default_factory=NtfMemoryStore)
    ntf_at: RouterLocation | None = None

    def __post_init__(self) -> None:
        self._ntf = World(self.apns, kept(self.ntf_store))
        self.pushes = ApnsPushes(self.apns)

    @asynccontextmanager
    async def smp(self, direct: bool = True, **changes: Any) -> AsyncIterator[SmpHarness]:
        settings = direct_settings(**changes) if direct else SmpDirectSettings(enabled=False)
        async with self.smp_place.running(direct=settings, notification_interval=0.02) as smp:
            yield smp

    @asynccontextmanager
    async def ntf(self, direct: bool = True) -> AsyncIterator[NtfHarness]:
        port = 0 if self.ntf_at is None else int(self.ntf_at.port)
        settings = NtfDirectSettings(enabled=direct)
        async with self._ntf.ntf(direct=settings, public_hosts=(HOST,), ports=(port,)) as ntf:
            self.ntf_at = ntf.location
            yield ntf

    @asynccontextmanager
    async def alice(
        self, smp: SmpHarness | RouterLocation, direct: bool = True, **changes: Any
    ) -> AsyncIterator[RunningAgent]:
        """Opens her file, each time the same. She is the one whose device is woken."""
        assert self.ntf_at is not None
        async with running_agent(
            self.path / "alice", [smp], [self.ntf_at], self.pushes, clock=self.clock, direct=direct, **changes
        ) as alice:
            yield alice
            alice.no_trouble()

    @asynccontextmanager
    async def bob(self, smp: SmpHarness | RouterLocation, direct: bool = True) -> AsyncIterator[RunningAgent]:
        async with running_agent(
            self.path / "bob", [smp], [], RecordingProvider(), clock=self.clock, direct=direct
        ) as bob:
            yield bob


@asynccontextmanager
async def direct_world(path: Path) -> AsyncIterator[DirectWorld]:
    """Only the push provider runs."""
    async with running_fake_apns(path / "apns") as apns:
        yield DirectWorld(path, apns)


@dataclass
class Scene:
    """Everything runs."""

    world: DirectWorld
    smp: SmpHarness
    ntf: NtfHarness
    alice: RunningAgent
    bob: RunningAgent

    @property
    def ntf_clock(self) -> HeldFineClock:
        return self.ntf.clock

    async def associated(self, count: int) -> None:
        """The NTF router has so many queues of the SMP router by packets or as its service."""
        await eventually(lambda: self.ntf.store.used_router(self.smp.location), _has(count))

    async def known_at_ntf(self, queue: ReceiveQueue) -> bool:
        assert queue.notifier is not None
        name = NotifierQueue(queue.router, queue.notifier.notifier_id)
        return await self.ntf.store.subscription_of(name) is not None

    async def queue(self, at_alice: str) -> ReceiveQueue:
        [queue] = await self.alice.store.primary_queues([at_alice])
        return queue

    async def wakes(self, at_alice: str, at_bob: str, body: bytes, *, priority: int = 1) -> None:
        """A message of Bob's wakes Alice, who is not subscribed, and she fetches it."""
        await self.bob.agent.connections.send(at_bob, body, priority=priority)
        try:
            await fetched_after_push(self.alice, at_alice, body)
        except AssertionError as failure:
            failure.add_note(await self.whereabouts())
            raise

    async def whereabouts(self) -> str:
        """Say where notifications are, and what everybody knows: a failure that comes once must explain itself."""
        smp, ntf, store = self.smp.running.state, self.ntf.running, self.smp.store
        queues = await self.alice.store.primary_queues(
            [each.connection_id for each in await self.alice.store.connections()]
        )
        lines = [f"{smp.counters.notifications_sent=} {smp.counters.notifications_repeated=}"]
        for queue in queues:
            lines.append(f"queue {queue.recipient_id.hex()[:8]}: {queue.last_message_at=}")
            if queue.notifier is not None:
                name = queue.notifier.notifier_id
                stored = store.queue_by_notifier(name)
                at_ntf = await self.known_at_ntf(queue)
                waiting, sent = store.notifications(name), smp.sent_nonces.get(name, {})
                service = None if stored is None or stored.notifier is None else stored.notifier.service_id
                receiver = None if service is None else smp.subscriptions.service(service)
                lines.append(
                    f"  notifier {name.hex()[:8]}: direct={queue.notifier.direct} known to the NTF router={at_ntf} "
                    f"service={service is not None} stored={len(waiting)} of them sent={len(sent)} "
                    f"has a receiver={(receiver or smp.subscriptions.notifier(name)) is not None}"
                )
        lines += [f"SMP router's peer: {each.notifications_sent=}" for each in self.smp.running.router.peers]
        lines += [f"NTF router's connection: {each.state}" for each in ntf.subscribers.routers.values()]
        lines.append(f"NTF router: {await self.ntf.store.accounting()}, {ntf.state.counters.pushes_retried=}")
        rows = await self.alice.store.subscriptions()
        lines += [f"agent: {row.phase} {row.action} {row.status} direct={row.direct}" for row in rows]
        return "\n".join(lines)


@asynccontextmanager
async def silent_listener(where: RouterLocation) -> AsyncIterator[None]:
    """In the place of a router: accepts connections and never says anything."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), HOST, int(where.port))
    try:
        yield
    finally:
        for writer in held:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


def killed_image(path: Path) -> None:
    """What a crash of the whole process would leave of this open file, next to it."""
    for suffix in ("", "-wal"):
        shutil.copy(path.with_name(path.name + suffix), path.with_name(f"{path.name}.killed{suffix}"))


def restore_image(path: Path) -> None:
    """The file is as it was then."""
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.with_name(f"{path.name}.killed{suffix}").rename(path.with_name(path.name + suffix))


def _has(count: int) -> Callable[[Any], bool]:
    return lambda used: used is not None and used.associated_count == count


async def eventually(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> None:
    found: Any = None
    try:
        async with asyncio.timeout(PATIENCE):
            while not wanted(found := await look()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"it is still {found}") from None


@asynccontextmanager
async def all_running(
    world: DirectWorld, *, smp: bool = True, ntf: bool = True, agent: bool = True, **changes: Any
) -> AsyncIterator[Scene]:
    """Each of them with direct notifications, or without."""
    async with AsyncExitStack() as stack:
        smp_router = await stack.enter_async_context(world.smp(smp))
        ntf_router = await stack.enter_async_context(world.ntf(ntf))
        alice = await stack.enter_async_context(world.alice(smp_router, agent, **changes))
        bob = await stack.enter_async_context(world.bob(smp_router))
        yield Scene(world, smp_router, ntf_router, alice, bob)


async def connected(alice: RunningAgent, bob: RunningAgent) -> tuple[str, str]:
    """A connection of the two, to which Alice is not subscribed any more; its ids at each."""
    invitation = await alice.agent.connections.create()
    joined = await bob.agent.connections.join(invitation.text)
    await alice.event(ConnectionReady, lambda event: event.connection_id == invitation.connection_id)
    await bob.event(ConnectionReady, lambda event: event.connection_id == joined)
    await alice.agent.connections.unsubscribe()
    return invitation.connection_id, joined


async def fetched_after_push(alice: RunningAgent, at_alice: str, body: bytes) -> None:
    """Reads pushes until one tells of this message, which is fetched; those before may be of greetings."""
    announced: set[bytes] = set()
    found: dict[bytes, bytes] = {}
    while found.get(body) not in announced:
        try:
            payload = await alice.push()
        except AssertionError as failure:
            failure.add_note(f"fetched: {found}; announced by pushes: {announced}")
            raise
        woken = await alice.agent.wake(payload)
        assert isinstance(woken, Woken), woken
        announced |= await _announced(alice, payload)
        for fetched in await alice.fetch(woken.to_fetch):
            assert fetched.failure is None, fetched
            if fetched.item.connection_id == at_alice:
                arrived = (each for each in fetched.messages if isinstance(each, MessageArrived))
                found.update((each.body, each.message_id) for each in arrived)


async def _announced(alice: RunningAgent, payload: bytes) -> set[bytes]:
    """Ids of all messages that a push tells of, those included that Alice has already."""
    token = await alice.agent.tokens.current()
    push = parse_push_json(payload)
    assert token.secret is not None
    assert isinstance(push, MessagePush)
    items = unseal_notifications(box_key(token.secret), push)
    queues = await alice.store.notified_queues([item.queue for item in items])
    return {
        unseal_meta(box_key(queue.secret), item.nonce, item.sealed_meta).message_id
        for item, queue in zip(items, queues, strict=True)
        if queue is not None
    }
