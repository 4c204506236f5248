"""Former tokens, which the agent deletes at their NTF routers however long it takes to reach them (ntf.md 6.8)."""

from __future__ import annotations

from functools import partial
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.runtime.events import EventQueue, TokenNotDeleted
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.workers import Idle, More, PlainJob, Retry, Round, Workers
from tocsin.agent.store.interface import TokenRecords
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation

_WORKER: Final = "token deletion worker"


class FormerTokens:
    """Sends TDEL, oldest first, and gives up after `forget_after` seconds."""

    def __init__(
        self,
        store: TokenRecords,
        clients: RouterClients,
        clock: WaitingClock,
        events: EventQueue,
        workers: Workers,
        forget_after: float,
    ) -> None:
        self._store = store
        self._clients = clients
        self._clock = clock
        self._events = events
        self._workers = workers
        self._forget_after = forget_after

    async def start(self) -> None:
        for former in await self._store.tokens_to_delete():
            self._kick(former.router)

    async def remove_token(self, *, delete_at_router: bool) -> None:
        """Remove the present token. It is deleted at its router later, if that can know it."""
        now = int(self._clock.exactly())
        former = await self._store.remove_token(delete_at_router=delete_at_router, now=now)
        if former is not None:
            self._kick(former.router)

    def _kick(self, router: RouterLocation) -> None:
        self._workers.kick(_WORKER, router, lambda: PlainJob(_WORKER, partial(self._delete_oldest, router)))

    async def _delete_oldest(self, router: RouterLocation) -> Round:
        await self._store.forget_tokens_to_delete(int(self._clock.exactly() - self._forget_after))
        waiting = [each for each in await self._store.tokens_to_delete() if each.router == router]
        if not waiting:
            return Idle()
        oldest = waiting[0]
        try:
            async with self._clients.ntf(router) as lease:
                await lease.client.delete_token(oldest.token_id, private_key_from_der(oldest.key))
        except TocsinError as error:
            kind = error_kind(error)
            if kind is ErrorKind.TEMPORARY:
                return Retry()
            if kind is ErrorKind.PERMANENT:  # with AUTH it is already gone
                self._events.tell(TokenNotDeleted(router, error))
        await self._store.token_deleted(oldest.number)
        return More()
