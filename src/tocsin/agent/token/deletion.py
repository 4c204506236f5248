"""Former tokens are deleted at their NTF router, however long it takes to reach it (ntf.md 6.8)."""

from __future__ import annotations

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.runtime.events import TokenNotDeleted
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.workers import Idle, More, Retry, Round, Worker
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation


class TokenDeletionWorker(Worker):
    """TDEL, oldest first."""

    name = "token deletion worker"

    def __init__(self, parts: AgentParts, router: RouterLocation) -> None:
        super().__init__(parts)
        self._router = router

    async def work(self) -> Round:
        await self._store.forget_tokens_to_delete(
            int(self._clock.now() - self._settings.forget_deletions_after)
        )
        waiting = [each for each in await self._store.tokens_to_delete() if each.router == self._router]
        if not waiting:
            return Idle()
        oldest = waiting[0]
        try:
            async with self._clients.ntf(self._router) as lease:
                await lease.client.delete_token(oldest.token_id, private_key_from_der(oldest.key))
        except TocsinError as error:
            kind = error_kind(error)
            if kind is ErrorKind.TEMPORARY:
                return Retry()
            if kind is ErrorKind.PERMANENT:  # AUTH: it is gone already
                self._events.tell(TokenNotDeleted(self._router, error))
        await self._store.token_deleted(oldest.number)
        return More()
