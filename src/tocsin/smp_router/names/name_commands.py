"""RSLV: answered by the resolver that the operator configured, or refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from tocsin.protocol.error_codes import CommandFault, NameFault, ResolverFault, RouterError
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.names import NameResolved, ResolveName
from tocsin.protocol.smp.versions import NAMES_VERSION
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import AnswerWithName, RelayedCommand, SmpRequest, SmpState
from tocsin.smp_router.settings.settings import SmpNameSettings

if TYPE_CHECKING:
    from tocsin.smp_router.names.resolver import NameResolver

C = TypeVar("C", bound=Command)

_BUSY: Final = ResolverFault("resolver error")


class NameCommands:
    """Resolves names, for clients and for those behind a proxy.

    A connection has a limited number of names at a time. Beyond it they are refused at once, because a proxy's
    connection also carries messages of other clients, which must not wait.
    """

    def __init__(self, state: SmpState) -> None:
        self._state = state
        settings = state.settings
        self._is_known: Final = settings.highest_version >= NAMES_VERSION
        self._resolver: Final = _resolver(settings.names) if settings.names.enabled else None
        self._check: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask in the background whether the resolver is healthy."""
        if self._resolver is not None:
            self._check = asyncio.create_task(self._resolver.check(), name="smp-names")

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check])

    def answer(self, request: SmpRequest[ResolveName]) -> Response:
        """RSLV"""
        return self.begin(request, request.command.name, None)

    def begin(self, request: SmpRequest[C], name: str, relayed: RelayedCommand | None) -> Response:
        """Return the refusal, or let the request be answered when the name is resolved.

        If RSLV came through a proxy, `relayed` seals its answer.
        """
        refusal = self._refusal(request.peer)
        if refusal is not None:
            return Refused(refusal) if relayed is None else relayed.sealed(Refused(refusal))
        request.peer.names_waiting += 1
        request.effects.append(AnswerWithName(name, relayed))
        return Done()  # until the name is resolved

    def _refusal(self, peer: Peer) -> RouterError | None:
        if not self._is_known:
            return CommandFault.UNKNOWN
        counters = self._state.counters.names
        counters.requests += 1
        if self._resolver is None:
            counters.disabled += 1
            return NameFault.NO_RESOLVER
        if peer.names_waiting >= self._state.settings.names.concurrency:
            counters.resolver_errors += 1
            return _BUSY
        return None

    async def resolve(self, name: str) -> Response:
        """Return the answer to RSLV for a name that `begin` accepted."""
        assert self._resolver is not None
        found, counters = await self._resolver.resolve(name), self._state.counters.names
        if isinstance(found, bytes):
            counters.resolved += 1
            return NameResolved(found)
        if found is NameFault.NOT_FOUND:
            counters.not_found += 1
        else:
            counters.resolver_errors += 1
        return Refused(found)


def _resolver(settings: SmpNameSettings) -> NameResolver:
    from tocsin.smp_router.names.resolver import NameResolver  # needs an HTTP client, which few routers need

    return NameResolver(settings)
