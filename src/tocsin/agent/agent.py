"""The agent: everything a device does for its notifications, over one store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from tocsin.agent.connections.connections import Connections
from tocsin.agent.connections.inbox import MessageInbox
from tocsin.agent.connections.listener import QueueListener
from tocsin.agent.connections.messages import MessageReceiver
from tocsin.agent.connections.queues import QueueRequests
from tocsin.agent.connections.unfinished import ConnectionSteps, UnfinishedConnections
from tocsin.agent.runtime.events import AgentEvent, EventQueue, MessageEvent
from tocsin.agent.runtime.router_clients import Connect, RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.runtime.workers import Workers
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.agent.token.deletion import FormerTokens
from tocsin.agent.token.registrar import TokenRegistrar
from tocsin.agent.token.requests import TokenRequests
from tocsin.agent.token.router_inquiries import RouterUnusable, ask_vapid_key, try_ntf_router
from tocsin.agent.wake.notified import Fetched, ToFetch, WakeResult
from tocsin.agent.wake.waking import Waking
from tocsin.clients import Event, NtfClient, SmpClient
from tocsin.operate.clock import SystemClock, WaitingClock
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.pushes import Push


class Agent:
    """`async with Agent(store, settings) as agent`. The caller opens and closes the store.

    Agents share nothing, so a process may have any number of them.
    """

    def __init__(
        self,
        store: AgentStore,
        settings: AgentSettings | None = None,
        *,
        clock: WaitingClock | None = None,
        connect_smp: Connect[SmpClient] | None = None,
        connect_ntf: Connect[NtfClient] | None = None,
    ) -> None:
        settings, clock = settings or AgentSettings(), clock or SystemClock()
        retries = settings.retries
        self.settings = settings
        self._store = store
        self._events = events = EventQueue()
        self._tasks = tasks = BackgroundTasks(events)
        self._clients = clients = RouterClients(
            settings, self._on_event, connect_smp=connect_smp, connect_ntf=connect_ntf
        )
        workers = Workers(tasks, clock, retries, events)
        self.supervisor = Supervisor(store, clients, settings, clock, events, workers)
        self._former_tokens = FormerTokens(
            store, clients, clock, events, workers, settings.forget_deletions_after
        )
        requests = TokenRequests(store, clients, settings)
        self.tokens = TokenRegistrar(store, requests, self._former_tokens, self.supervisor, events, tasks)
        """Registers, verifies, checks and deletes the token."""
        self._inbox = MessageInbox(store, events, settings.unsettled_messages)
        queues = QueueRequests(store, clients, clock, settings.smp_routers)
        receiver = MessageReceiver(store, clients, events, queues, self._inbox)
        self._listener = QueueListener(clients, receiver, retries, clock, events, tasks)
        steps = ConnectionSteps(store, events, queues, receiver, self.supervisor)
        self._unfinished = UnfinishedConnections(store, steps, clock, retries, tasks)
        self.connections = Connections(
            store, clock, queues, self.supervisor, self._listener, self._unfinished
        )
        """Creates connections, sends, receives, and chooses which connections notify."""
        self._waking = Waking(store, self.tokens, receiver, self._listener, settings.fetch_at_once)
        self.supervisor.on_token_doubt = self.tokens.check_in_background
        receiver.on_changed_queues = self._unfinished.resume

    async def __aenter__(self) -> Self:
        """Continue with everything that was under way when the agent was closed or killed."""
        await self._inbox.restore()
        await self._former_tokens.start()
        await self.supervisor.start()
        await self._unfinished.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()
        await self._clients.close()

    def events(self) -> AsyncIterator[AgentEvent]:
        """Iterate over events, for one reader. Asking for the next event settles a message."""
        return self._inbox.read()

    async def next_event(self) -> AgentEvent:
        """Wait for the next event, for one reader, who settles messages."""
        return await self._events.next()

    def waiting_events(self) -> list[AgentEvent]:
        """Take all unread events, even after the agent has ended."""
        return self._events.waiting()

    async def settled(self, *messages: MessageEvent) -> None:
        """Delete messages that the app has saved. Until then they are kept, and handed out again after a restart.

        While too many are unsettled (`AgentSettings.unsettled_messages`), the agent receives no more.
        """
        await self._inbox.settled(*messages)

    async def wake(self, payload: bytes) -> WakeResult:
        """Act on a push: verify the token with it, or find out what to fetch; see `Waking.wake`."""
        return await self._waking.wake(payload)

    async def wake_by_web_push(self, body: bytes) -> WakeResult:
        """Do the same as `wake` with the body of a Web Push, as the distributor delivered it."""
        return await self._waking.wake_by_web_push(body)

    async def open_web_push(self, body: bytes) -> Push:
        """Return the contents of a Web Push without acting on it; see `Waking.open_web_push`."""
        return await self._waking.open_web_push(body)

    async def fetch(self, items: Sequence[ToFetch]) -> list[Fetched]:
        """Fetch messages of the queues that a push named. The app settles them; see `Waking.fetch`."""
        return await self._waking.fetch(items)

    async def change_passphrase(self, passphrase: str | None) -> None:
        """Encrypt keys, tokens and messages in the store with another passphrase, or with None no longer.

        Atomic: whatever happens meanwhile, the former passphrase or the new one opens the store.
        """
        await self._store.change_passphrase(passphrase)

    async def vapid_key(self, address: RouterAddress) -> bytes:
        """Ask an NTF router for its public key for Web Push, which some distributors need; see `ask_vapid_key`."""
        return await ask_vapid_key(address, self.settings.clients)

    async def try_ntf_router(self, address: RouterAddress) -> RouterUnusable | None:
        """Find out whether an NTF router is usable. Returns None if it is."""
        return await try_ntf_router(address, self.settings.clients)

    @property
    def at_rest(self) -> bool:
        """Whether everything that was started is done, or waits for its time."""
        return self.supervisor.resting and not self._tasks.errands_under_way

    async def until_at_rest(self) -> None:
        """Wait until the agent is at rest."""
        while True:
            await self.supervisor.decided()
            if self.at_rest:
                return
            self._tasks.quieter.clear()
            await self._tasks.quieter.wait()

    async def _on_event(self, router: RouterLocation, client: SmpClient, event: Event) -> None:
        await self._listener.on_event(router, client, event)
