"""Connections to routers: shared between all users of a router, and limited in number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from tocsin.agent.runtime.settings import AgentSettings
from tocsin.clients import Event, NtfClient, SmpClient
from tocsin.errors import ConnectFailed, ConnectionLost, HandshakeRefused, TocsinError, TransportError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme

C = TypeVar("C", SmpClient, NtfClient)


class Purpose(Enum):
    COMMANDS = "commands"
    RECEIVE = "subscriptions and commands of the recipient"
    GET = "reading without subscribing"
    """Separate, because a router refuses SUB and GET of one queue on one connection (smp.md 6.6)."""


OnEvent: TypeAlias = Callable[[RouterLocation, SmpClient, Event], Awaitable[None]]
Connect: TypeAlias = Callable[[RouterAddress], AbstractAsyncContextManager[C]]

_Key: TypeAlias = tuple[Scheme, RouterLocation, Purpose]


@dataclass(eq=False)
class _Shared(Generic[C]):
    """One connection and its users."""

    stack: AsyncExitStack
    client: C
    reader: asyncio.Task[None] | None = None
    users: int = 0
    lost: asyncio.Future[TransportError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True)
class Lease(Generic[C]):
    client: C
    lost: asyncio.Future[TransportError]
    """Done when the connection has ended, with the reason."""


class RouterClients:
    """Opens a connection when it is first needed, and keeps it until it is lost, or idle while another needs room."""

    def __init__(
        self,
        settings: AgentSettings,
        on_event: OnEvent,
        *,
        connect_smp: Connect[SmpClient] | None = None,
        connect_ntf: Connect[NtfClient] | None = None,
    ) -> None:
        self._settings = settings
        self._on_event = on_event
        self._connect_smp = connect_smp or (lambda where: SmpClient.connect(where, settings.dialling))
        self._connect_ntf = connect_ntf or (lambda where: NtfClient.connect(where, settings.dialling))
        self._shared: dict[_Key, _Shared[Any]] = {}
        """Least recently used first."""
        self._dialling: dict[_Key, asyncio.Lock] = {}
        self._failures: dict[_Key, tuple[float, TocsinError]] = {}
        self._idle = asyncio.Condition()
        self._reserved = 0

    @asynccontextmanager
    async def smp(
        self, router: RouterLocation, purpose: Purpose = Purpose.RECEIVE
    ) -> AsyncIterator[Lease[SmpClient]]:
        """Lease a connection. Entering raises TransportError or HandshakeRefused, at once if it did so a moment ago."""
        async with self._lease((Scheme.SMP, router, purpose), self._connect_smp) as lease:
            yield lease

    @asynccontextmanager
    async def ntf(self, router: RouterLocation) -> AsyncIterator[Lease[NtfClient]]:
        async with self._lease((Scheme.NTF, router, Purpose.COMMANDS), self._connect_ntf) as lease:
            yield lease

    @property
    def open_connections(self) -> int:
        return len(self._shared)

    async def close_smp(self) -> None:
        """Close the connections to SMP routers, which ends all subscriptions to queues."""
        await self._close([key for key in self._shared if key[0] is Scheme.SMP])

    async def close(self) -> None:
        await self._close(list(self._shared))

    async def _close(self, keys: list[_Key]) -> None:
        ended = [shared for key in keys if (shared := self._shared.pop(key, None))]
        await asyncio.gather(*(self._end(shared) for shared in ended))

    @asynccontextmanager
    async def _lease(self, key: _Key, connect: Connect[C]) -> AsyncIterator[Lease[C]]:
        async with self._dialling.setdefault(key, asyncio.Lock()):
            shared: _Shared[C] = (
                self._shared.pop(key) if key in self._shared else await self._dialled(key, connect)
            )
            self._shared[key] = shared
            shared.users += 1
        try:
            yield Lease(shared.client, shared.lost)
        finally:
            shared.users -= 1
            async with self._idle:
                self._idle.notify_all()

    async def _dialled(self, key: _Key, connect: Connect[C]) -> _Shared[C]:
        now = asyncio.get_running_loop().time()
        until, failure = self._failures.pop(key, (0.0, None))
        if failure is not None and now < until:
            self._failures[key] = until, failure
            raise failure.with_traceback(None)
        await self._make_room()
        stack = AsyncExitStack()
        try:
            client = await stack.enter_async_context(connect(RouterAddress(key[0], key[1])))
        except (TransportError, HandshakeRefused) as error:
            later = asyncio.get_running_loop().time() + self._settings.remember_failure
            self._failures[key] = later, error
            raise
        except Exception as error:  # whatever goes wrong while connecting may be right next time (v7.md 7.2)
            raise ConnectFailed(
                f"connecting to {RouterAddress(key[0], key[1]).name} failed: {error}"
            ) from error
        finally:
            self._reserved -= 1
        shared = _Shared(stack, client)
        shared.reader = asyncio.create_task(self._read(key, shared))
        return shared

    async def _make_room(self) -> None:
        """Reserve one of `max_connections`, closing an unused connection if necessary."""
        limit, patience = self._settings.max_connections, self._settings.clients.dial.connect_timeout
        while len(self._shared) + self._reserved >= limit:
            if idle := next((key for key, shared in self._shared.items() if not shared.users), None):
                await self._close([idle])
                continue
            try:
                async with asyncio.timeout(patience), self._idle:
                    await self._idle.wait()
            except TimeoutError:
                raise ConnectFailed(f"all {limit} connections of this agent are in use") from None
        self._reserved += 1

    async def _read(self, key: _Key, shared: _Shared[Any]) -> None:
        """Pass events on until the connection is lost."""
        try:
            async for event in shared.client.events():
                await self._on_event(key[1], shared.client, event)
        except TransportError as error:
            if not shared.lost.done():
                shared.lost.set_result(error)
        finally:
            if self._shared.get(key) is shared:
                del self._shared[key]
            if not shared.lost.done():
                shared.lost.set_result(ConnectionLost("the agent closed the connection"))
        with suppress(TocsinError):
            await shared.stack.aclose()

    async def _end(self, shared: _Shared[Any]) -> None:
        assert shared.reader is not None
        shared.reader.cancel()
        await asyncio.wait([shared.reader])
        with suppress(TocsinError):
            await shared.stack.aclose()
