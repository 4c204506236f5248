"""An agent: everything a device does for its notifications, over one store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from tocsin.agent.connections.connections import Connections
from tocsin.agent.connections.fetching import Fetching
from tocsin.agent.connections.inbox import Handover
from tocsin.agent.connections.listener import Listening
from tocsin.agent.connections.messages import Messages
from tocsin.agent.connections.queues import Queues
from tocsin.agent.connections.unfinished import Settling
from tocsin.agent.runtime.event_queue import EventQueue
from tocsin.agent.runtime.events import AgentEvent, MessageEvent
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import AgentClock, SystemClock
from tocsin.agent.runtime.router_clients import Connect, RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.agent.token.registrar import Tokens
from tocsin.agent.token.router_trial import RouterUnusable, try_ntf_router
from tocsin.agent.wake.waking import Fetched, ToFetch, WakeResult, Waking
from tocsin.clients import Event, NtfClient, SmpClient
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.pushes import Push


class Agent:
    """`async with Agent(store, settings) as agent`. The store is opened and closed by the caller.

    There is nothing that agents share, so a process may have as many as it likes.
    """

    def __init__(
        self,
        store: AgentStore,
        settings: AgentSettings | None = None,
        *,
        clock: AgentClock | None = None,
        connect_smp: Connect[SmpClient] | None = None,
        connect_ntf: Connect[NtfClient] | None = None,
    ) -> None:
        self.settings = settings or AgentSettings()
        self._store = store
        self._events = EventQueue()
        self._tasks = BackgroundTasks(self._events)
        self._clients = RouterClients(
            self.settings, self._on_event, connect_smp=connect_smp, connect_ntf=connect_ntf
        )
        parts = AgentParts(store, self._clients, self.settings, clock or SystemClock(), self._events)
        queues = Queues(parts)
        self.supervisor = Supervisor(parts, self._tasks, self._suspect_token, self._fetch_key)
        self._handover = Handover(store, self._events, self.settings.unsettled_messages)
        messages = Messages(parts, queues, self._handover, self._go_on)
        fetching = Fetching(self._clients, messages)
        self._listening = Listening(parts, messages, self._tasks)
        self._settling = Settling(parts, queues, fetching, self.supervisor, self._tasks)
        self.tokens = Tokens(parts, self.supervisor, self._tasks)
        """Registering, verifying, checking and deleting the token."""
        self.connections = Connections(parts, queues, self.supervisor, self._listening, self._settling)
        """Making connections, sending, receiving, and whether they notify."""
        self._waking = Waking(parts, self.tokens, fetching, self._listening)

    async def __aenter__(self) -> Self:
        """Everything that was under way when the agent was last closed, or killed, goes on."""
        await self._handover.restore()
        await self.supervisor.start()
        await self._settling.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()
        await self._clients.close()

    def events(self) -> AsyncIterator[AgentEvent]:
        """For one reader, without end. A message is settled when the next event is asked for."""
        return self._handover.read()

    async def next_event(self) -> AgentEvent:
        """For one reader, who settles messages."""
        return await self._handover.next()

    def waiting_events(self) -> list[AgentEvent]:
        """Those that nobody has read yet, also when the agent has ended."""
        return self._events.waiting()

    async def settled(self, *messages: MessageEvent) -> None:
        """The app has these messages for good. Until then they are kept, and handed out again after a restart.

        With too many that are not settled (`AgentSettings.unsettled_messages`), no more are received.
        """
        await self._handover.settled(*messages)

    async def wake(self, payload: bytes) -> WakeResult:
        """A push has come: verifies the token with it, or says what to fetch; see `Waking.wake`."""
        return await self._waking.wake(payload)

    async def wake_by_web_push(self, body: bytes) -> WakeResult:
        """`wake` by the body of a Web Push, as the distributor delivered it; see `Waking.wake_by_web_push`."""
        return await self._waking.wake_by_web_push(body)

    async def open_web_push(self, body: bytes) -> Push:
        """What the body of a Web Push carries, without acting upon it; see `Waking.open_web_push`."""
        return await self._waking.open_web_push(body)

    async def fetch(self, items: Sequence[ToFetch]) -> list[Fetched]:
        """Messages of the queues that a push told of, which the app settles; see `Waking.fetch`."""
        return await self._waking.fetch(items)

    async def change_passphrase(self, passphrase: str | None) -> None:
        """Encrypts keys, tokens and messages in the store for this one from now on, or not any more with None.

        Atomic: whatever happens meanwhile, the store can be opened with the former passphrase or with the new one.
        """
        await self._store.change_passphrase(passphrase)

    async def try_ntf_router(self, address: RouterAddress) -> RouterUnusable | None:
        """Whether an NTF router can be used: None if so."""
        return await try_ntf_router(address, self.settings.clients)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was set off so far is done, or waits for its time."""
        return self.supervisor.resting and not self._tasks.errands_under_way

    @property
    def open_connections(self) -> int:
        """To routers."""
        return self._clients.open_connections

    # The parts of an agent know each other only through these.

    async def _on_event(self, router: RouterLocation, client: SmpClient, event: Event) -> None:
        await self._listening.on_event(router, client, event)

    def _go_on(self, connection_id: str) -> None:
        self._settling.go_on(connection_id)

    def _suspect_token(self) -> None:
        self.tokens.suspect()

    def _fetch_key(self) -> None:
        self.tokens.fetch_key()
