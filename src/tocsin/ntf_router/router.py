"""The NTF router's side of its clients: connections and the commands of their blocks (ntf.md 4.1).

Each connection has two tasks. One reads blocks, answers at once what is malformed or not authorized, and hands the
rest to the other, which executes block after block in order. At most `BLOCKS_WAITING` blocks wait in between; then
the connection is not read.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, NamedTuple

from tocsin.errors import ConnectionLost, HandshakeRefused, HandshakeTimeout, StoreError
from tocsin.ntf_router.direct.commands import DirectCommands
from tocsin.ntf_router.session.work import Authorized, RouterState
from tocsin.ntf_router.subscriptions import Subscriptions
from tocsin.ntf_router.tokens import Tokens
from tocsin.ntf_router.verification import authorize
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.direct.ntf_messages import ForwardPacket, PacketHandled
from tocsin.protocol.error_codes import ErrorCode, RouterError, StoreFault
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand, RefusedCommand
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_ntf

BLOCKS_WAITING: Final = 64

logger = logging.getLogger(__name__)


class _Task(NamedTuple):
    received: ReceivedCommand
    about: Authorized


class NtfRouter:
    """Everything about clients but the listener."""

    def __init__(
        self, state: RouterState, identity: RouterIdentity, direct: DirectCommands | None = None
    ) -> None:
        """Without `direct` the identity offers no direct notifications."""
        self._state = state
        self._identity = identity
        self._direct = direct
        self._tokens = Tokens(state)
        self._subscriptions = Subscriptions(state)
        self.connections: set[RouterConnection] = set()

    async def handle(self, connection: BlockConnection) -> None:
        """One connection, from its hello to its end."""
        if connection.alpn is None and not self._state.settings.accept_without_alpn:
            self._state.counters.connections_refused += 1
            return
        try:
            accepted = await accept_ntf(
                connection, self._identity, hello_seconds=self._state.settings.hello_seconds
            )
        except (HandshakeRefused, HandshakeTimeout):
            self._state.counters.connections_refused += 1
            return
        self._state.counters.connections += 1
        self.connections.add(accepted)
        try:
            await self._serve(accepted)
        finally:
            self.connections.discard(accepted)

    def disconnect_inactive(self) -> None:
        """Clients on which nothing has moved for long: they wait for nothing, so silence is all that counts."""
        ttl = self._state.settings.inactive_ttl
        now = asyncio.get_running_loop().time()
        for client in list(self.connections):
            connection = client.connection
            if ttl is not None and now - max(connection.received_at, connection.sent_at) > ttl:
                self._state.counters.connections_inactive += 1
                connection.abort()

    async def _serve(self, connection: RouterConnection) -> None:
        waiting: asyncio.Queue[list[_Task] | None] = asyncio.Queue(BLOCKS_WAITING)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._execute_all(connection, waiting))
            with suppress(ConnectionLost):
                while True:
                    received = await connection.receive()
                    if verified := await self._verify(connection, received):
                        await waiting.put(verified)
            await waiting.put(None)

    async def _verify(
        self, connection: RouterConnection, received: list[ReceivedCommand | RefusedCommand]
    ) -> list[_Task]:
        """Answers failures in a block of their own; returns the rest."""
        self._state.counters.commands += len(received)
        failures: list[bytes] = []
        verified: list[_Task] = []
        for each in received:
            error: RouterError
            if isinstance(each, RefusedCommand):
                self._state.counters.command_errors += 1
                error = each.error
            else:
                try:
                    about = await authorize(self._state.store, connection.session, each)
                except StoreError as failure:
                    error = self._store_failed(failure)
                else:
                    if about is not None:
                        verified.append(_Task(each, about))
                        continue
                    self._state.counters.auth_failures += 1
                    error = ErrorCode.AUTH
            failures.append(connection.session.response(each.corr_id, each.entity_id, Refused(error)))
        if failures:
            await connection.send(failures)
        return verified

    async def _execute_all(
        self, connection: RouterConnection, waiting: asyncio.Queue[list[_Task] | None]
    ) -> None:
        """Until the connection ends; commands that were accepted before are executed all the same."""
        while (block := await waiting.get()) is not None:
            answers = []
            for received, about in block:
                response = await self._execute(received, about)
                if self._direct is not None and is_direct(connection.session.dialect):
                    response = self._direct.with_key(response)
                answers.append(connection.session.response(received.corr_id, received.entity_id, response))
            with suppress(ConnectionLost):
                await connection.send(answers)

    async def _execute(self, received: ReceivedCommand, about: Authorized) -> Response:
        try:
            if about.token is not None:
                now = self._state.clock.now()
                day = now - now % 86_400
                if about.token.updated_at != day:
                    await self._state.store.note_use(about.token.token_id, day)
            return await self._answer(received, about)
        except StoreError as failure:
            return Refused(self._store_failed(failure))

    async def _answer(self, received: ReceivedCommand, about: Authorized) -> Response:
        match received.command, about.token, about.subscription:
            case Ping(), _, _:
                return Pong()
            case ForwardPacket(packet), _, _ if self._direct is not None:
                return PacketHandled(await self._direct.packets.handle(packet))
            case RegisterToken() as command, _, _:
                return await self._tokens.register(command)
            case VerifyToken() as command, token, _ if token is not None:
                return await self._tokens.verify(token, command)
            case CheckToken(), token, _ if token is not None:
                return await self._tokens.check(token)
            case ReplaceToken() as command, token, _ if token is not None:
                return await self._tokens.replace(token, command)
            case DeleteToken(), token, _ if token is not None:
                return await self._tokens.delete(token)
            case SetPeriodicPush() as command, token, _ if token is not None:
                return await self._tokens.set_periodic(token, command)
            case SubscribeToQueue() as command, token, existing if token is not None:
                return await self._subscriptions.subscribe(token, existing, command)
            case CheckSubscription(), _, subscription if subscription is not None:
                return await self._subscriptions.check(subscription)
            case DeleteSubscription(), token, subscription if token is not None and subscription is not None:
                return await self._subscriptions.delete(token, subscription)
        raise AssertionError(f"{received.command!r} was authorized without what it is about")

    def _store_failed(self, failure: StoreError) -> StoreFault:
        """The client gets a short fixed text: what the database says is not for it."""
        self._state.counters.store_errors += 1
        logger.error("the store failed: %s", failure)
        return StoreFault("the store is not available, try again")
