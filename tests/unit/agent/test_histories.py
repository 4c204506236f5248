"""Random histories of commands, answers, faults and crashes: whatever happened, everything comes to rest and is right.

Right is: in instant mode every connection that wants notifications has exactly one subscription that works, at the
current token, for the notifier that its queue has now; all others, and all in periodic mode, have none.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.doubles.agent_samples import NTF, SMP
from tests.doubles.fake_routers import FakeWorld, Fault
from tests.doubles.smp_harness import START
from tocsin.agent import Agent, AgentSettings
from tocsin.agent.store.records import NextAction, NotificationMode
from tocsin.agent.store.sqlite.store import AgentSqliteStore, opened_agent_store
from tocsin.clients import Backoff
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState

T = TypeVar("T")
DEVICES = tuple(DeviceToken(PushProvider.APNS_TEST, name) for name in (b"aa", b"bb"))
MANY_ROUNDS = 20_000
FEW_ROUNDS = 8


PLACES = st.integers(0, 4)


def at(place: int, names: Iterable[T]) -> list[T]:
    """The one at this place, counted round; none if there are none. What is drawn must not depend on names."""
    known = list(names)
    return [known[place % len(known)]] if known else []


class SameThread(Executor):
    """Runs work at once, so that a history takes the same course each time."""

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


class JumpingClock:
    """Short waits take no time; long ones end when the time is moved."""

    def __init__(self) -> None:
        self.time = float(START)
        self._waiting: list[tuple[float, asyncio.Event]] = []

    def exactly(self) -> float:
        return self.time

    async def wait(self, seconds: float) -> None:
        if seconds < 10:
            await asyncio.sleep(0)
            return
        moved = asyncio.Event()
        entry = (self.time + seconds, moved)
        self._waiting.append(entry)
        try:
            await moved.wait()
        finally:
            self._waiting.remove(entry)

    def move(self, seconds: float) -> None:
        self.time += seconds
        for until, moved in self._waiting:
            if until <= self.time:
                moved.set()


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.world = self.new_world()
        self.clock = self.new_clock()
        self.wanted: dict[str, bool] = {}
        """Connections, and whether they are to be notified of."""
        self.to_delete: list[str] = []
        """Whose deletion failed."""
        self.device: DeviceToken | None = None
        self.mode = NotificationMode.INSTANT
        self.stack = AsyncExitStack()

    # What histories of another kind replace

    direct: ClassVar[bool] = False

    def new_world(self) -> FakeWorld:
        return FakeWorld()

    def new_clock(self) -> JumpingClock:
        return JumpingClock()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def start(self) -> None:
        self.do(self._start())

    async def _start(self) -> None:
        self.stack = AsyncExitStack()
        path = Path(self.folder.name) / "agent.db"
        self.store: AgentSqliteStore = await self.stack.enter_async_context(
            opened_agent_store(path, executor=SameThread())
        )
        self.agent = Agent(
            self.store,
            AgentSettings(
                smp_routers=(RouterAddress(Scheme.SMP, SMP),),
                ntf_routers=(RouterAddress(Scheme.NTF, NTF),),
                retries=Backoff(initial=0.001, maximum=0.001),
                remember_failure=0.0,
                batch_size=2,
                command_queue=4,
                direct=self.direct,
                priority_delay=0.0,
            ),
            clock=self.clock,
            connect_smp=self.world.connect_smp,
            connect_ntf=self.world.connect_ntf,
        )
        await self.stack.enter_async_context(self.agent)

    async def _tried(self, work: Coroutine[Any, Any, object]) -> bool:
        """Whether it succeeded."""
        try:
            await work
        except TocsinError:
            return False
        return True

    # Commands

    @rule(notifications=st.booleans())
    def add_connection(self, notifications: bool) -> None:
        before = {*self.wanted, *self.to_delete}
        self.do(self._tried(self.agent.connections.create(notifications=notifications, subscribe=False)))
        for connection in self.do(self.store.connections()):
            if connection.connection_id not in before:
                self.wanted[connection.connection_id] = connection.notifications

    @rule(place=PLACES, enabled=st.booleans())
    def toggle(self, place: int, enabled: bool) -> None:
        for name in at(place, self.wanted):
            self.do(self.agent.connections.set_notifications(name, enabled))
            self.wanted[name] = enabled

    @rule(place=PLACES)
    def delete_connection(self, place: int) -> None:
        for name in at(place, self.wanted):
            del self.wanted[name]
            if not self.do(self._tried(self.agent.connections.delete(name))):
                self.to_delete.append(name)

    @rule(device=st.sampled_from(DEVICES), mode=st.sampled_from(NotificationMode))
    def register(self, device: DeviceToken, mode: NotificationMode) -> None:
        self.do(self._tried(self.agent.tokens.register(device, mode)))
        self.device, self.mode = device, mode

    @rule()
    def receive_pushes(self) -> None:
        while self.world.pushes:
            self.do(self._tried(self.agent.wake(self.world.pushes.popleft())))

    @rule()
    def check_token(self) -> None:
        self.do(self._tried(self.agent.tokens.check()))

    @rule()
    def delete_token(self) -> None:
        if self.do(self._tried(self.agent.tokens.delete())):
            self.device = None

    # The world

    @rule(rounds=st.integers(0, FEW_ROUNDS))
    def go_on(self, rounds: int) -> None:
        self.do(self._go_on(rounds))

    async def _go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.store.token()

    @rule(days=st.sampled_from((0.5, 1.0, 3.0)))
    def time_passes(self, days: float) -> None:
        self.clock.move(days * 86_400)

    @rule(faults=st.lists(st.sampled_from(Fault), max_size=4))
    def faults_to_come(self, faults: list[Fault]) -> None:
        self.world.faults.extend(faults)

    @rule(smp=st.booleans(), ntf=st.booleans())
    def routers_go_down_or_up(self, smp: bool, ntf: bool) -> None:
        self.world.smp_down, self.world.ntf_down = smp, ntf

    @rule()
    def ntf_router_loses_its_database(self) -> None:
        self.world.tokens.clear()

    @rule()
    def ntf_router_finds_tokens_invalid(self) -> None:
        for token in self.world.tokens.values():
            token.state = TokenState.INVALID

    @rule(place=PLACES)
    def smp_router_loses_a_notifier(self, place: int) -> None:
        for recipient_id in at(place, self.world.queues):
            self.world.lose_notifier(recipient_id)

    @rule()
    def agent_is_killed_and_starts_again(self) -> None:
        self.do(self.stack.aclose())
        self.do(self._start())

    # What must be

    @rule()
    def comes_to_rest(self) -> None:
        self.world.faults.clear()
        self.world.smp_down = self.world.ntf_down = False
        self.do(self._settle())
        self.do(self._check())

    async def _settle(self) -> None:
        while self.to_delete:
            await self.agent.connections.delete(self.to_delete.pop())
        if self.device is not None:
            for _ in range(6):
                status = await self.agent.tokens.register(self.device, self.mode)
                while self.world.pushes:
                    await self._tried(self.agent.wake(self.world.pushes.popleft()))
                if status.state is TokenState.ACTIVE:
                    break
            else:
                raise AssertionError(f"the token does not become active: {status}")
        for _ in range(3):  # two checks: one to find out, one to see what it has led to
            await self._rest()
            self.clock.move(4 * 86_400)
        await self._rest()

    async def _rest(self) -> None:
        for _ in range(FEW_ROUNDS):  # whoever waited for the time notices that it has come
            await asyncio.sleep(0)
        for _ in range(MANY_ROUNDS):
            await asyncio.sleep(0)
            await self.agent.supervisor.decided()
            if self.agent.supervisor.resting:
                return
        raise AssertionError(f"no rest: {await self.store.subscriptions()}")

    async def _check(self) -> None:
        instant = self.device is not None and self.mode is NotificationMode.INSTANT
        wanted = {name for name, enabled in self.wanted.items() if enabled and instant}
        rows = {row.connection_id: row for row in await self.store.subscriptions()}
        assert set(rows) == wanted
        assert {row.action for row in rows.values()} <= {NextAction.CHECK}
        assert await self.store.tokens_to_delete() == []
        token = await self.store.token()
        live: dict[bytes, bytes] = {}
        if self.device is not None:
            assert token is not None
            assert (token.device_token, token.mode) == (self.device, self.mode)
            at_router = self.world.tokens[token.token_id or b""]
            assert at_router.state is TokenState.ACTIVE
            live = {
                each.notifier_id: name
                for name, each in at_router.subscriptions.items()
                if each.status is SubscriptionState.ACTIVE
            }
        for name in self.wanted:
            [queue] = await self.store.primary_queues([name])
            at_smp = self.world.queues[queue.recipient_id]
            if name not in wanted:
                assert queue.notifier is None
                assert at_smp is None
                continue
            assert queue.notifier is not None
            assert queue.notifier.notifier_id == at_smp == rows[name].notifier_id
            assert live.pop(at_smp) == rows[name].subscription_id
        assert not live, "subscriptions that nobody wants"

    def teardown(self) -> None:
        try:
            if hasattr(self, "agent"):
                self.comes_to_rest()
        finally:
            self.do(self.stack.aclose())
            self.loop.close()
            self.folder.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
