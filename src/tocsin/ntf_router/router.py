"""The NTF router: connections of devices, and the commands of their blocks (ntf.md 4.1).

Each connection has two tasks. One reads blocks, refuses at once what is malformed or not authorized, and gives the rest
to the other, which executes block after block in order. When `BLOCKS_WAITING` blocks wait in between, the router stops
reading the connection. Signatures are checked, and packets opened, in slices of time (`transport.turns`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from tocsin.errors import ConnectionLost, HandshakeRefused, HandshakeTimeout, StoreError
from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.direct.packets import DirectCommands
from tocsin.ntf_router.session.rates import Rate, RateLimit
from tocsin.ntf_router.session.requests import NtfCommandTable, NtfRequest, NtfState, TokenRequest
from tocsin.ntf_router.session.verification import verify
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.ntf_router.subscriptions import SubscriptionCommands
from tocsin.ntf_router.tokens import TokenCommands
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.direct.ntf_messages import ForwardPacket
from tocsin.protocol.direct.vapid_keys import AskVapidKey
from tocsin.protocol.error_codes import ErrorCode, RouterError, StoreFault
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand, RefusedCommand
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_ntf
from tocsin.transport.turns import Turn, Turns, in_slices

BLOCKS_WAITING: Final = 64
COMMANDS_AT_ONCE: Final = 4
"""Commands of one connection to execute before other tasks get their turn."""
_REGISTERS: Final = (RegisterToken, ReplaceToken)
"""Commands that make the router push to a device token that nobody has proven to own."""

logger = logging.getLogger(__name__)


class NtfRouter:
    """Serves connections. The listener and the timers are in `running_router`."""

    def __init__(
        self, state: NtfState, identity: RouterIdentity, direct: DirectCommands | None = None
    ) -> None:
        """Without `direct` the identity offers no direct notifications."""
        self._state = state
        self._identity = identity
        self._direct = direct
        self._table = self._command_table()
        settings = state.settings
        self._registrations = RateLimit(settings.registrations_per_connection, settings.registration_interval)
        self.connections: set[RouterConnection] = set()
        self.turns = Turns()

    @property
    def direct_keys(self) -> DirectKeys | None:
        """The keys of direct notifications, if these are on."""
        return None if self._direct is None else self._direct.keys

    def _command_table(self) -> NtfCommandTable:
        table = NtfCommandTable()
        TokenCommands(self._state).add_to(table)
        SubscriptionCommands(self._state).add_to(table)
        if self._direct is not None:
            table.add(ForwardPacket, self._direct.forward)
            table.add(AskVapidKey, self._direct.tell_vapid_key)
        table.add(Ping, _pong)
        return table

    async def handle(self, connection: BlockConnection) -> None:
        """Serve one connection, from its hello to its end."""
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

    async def disconnect_inactive(self) -> None:
        """Close connections that have been silent for too long: devices do not wait for events."""
        ttl = self._state.settings.inactive_ttl
        now = asyncio.get_running_loop().time()
        async for client in in_slices(list(self.connections)):
            connection = client.connection
            if ttl is not None and now - max(connection.received_at, connection.sent_at) > ttl:
                self._state.counters.connections_inactive += 1
                connection.abort()

    async def _serve(self, connection: RouterConnection) -> None:
        waiting: asyncio.Queue[list[NtfRequest[Command]] | None] = asyncio.Queue(BLOCKS_WAITING)
        registrations = Rate(self._registrations)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._execute_all(connection, waiting))
            turn = self.turns.turn()
            with suppress(ConnectionLost):
                while True:
                    received = connection.receive_nowait()
                    if received is None:
                        received = await connection.receive()
                        turn.begin()
                    if verified := await self._verify(connection, received, registrations, turn):
                        await waiting.put(verified)
            await waiting.put(None)

    async def _verify(
        self,
        connection: RouterConnection,
        received: list[ReceivedCommand | RefusedCommand],
        registrations: Rate,
        turn: Turn,
    ) -> list[NtfRequest[Command]]:
        """Answer failures in a block of their own, and return the verified requests."""
        self._state.counters.commands += len(received)
        failures: list[bytes] = []
        verified: list[NtfRequest[Command]] = []
        for each in received:
            if turn.is_over():
                await turn.give_way()
                connection.connection.check_not_aborted()
            error: RouterError
            if isinstance(each, RefusedCommand):
                self._state.counters.command_errors += 1
                error = each.error
            elif isinstance(each.command, _REGISTERS) and not registrations.take(
                asyncio.get_running_loop().time()
            ):
                self._state.counters.registrations_refused += 1
                # Before its signature is checked: refusing must cost less than sending.
                error = ErrorCode.QUOTA
            else:
                try:
                    request = await verify(self._state.store, connection.session, each)
                except StoreError as failure:
                    error = self._store_failed(failure)
                else:
                    if request is not None:
                        verified.append(request)
                        continue
                    self._state.counters.auth_failures += 1
                    error = ErrorCode.AUTH
            failures.append(connection.session.response(each.corr_id, each.entity_id, Refused(error)))
        if failures:
            await connection.send(failures)
        return verified

    async def _execute_all(
        self, connection: RouterConnection, waiting: asyncio.Queue[list[NtfRequest[Command]] | None]
    ) -> None:
        """Execute blocks until the connection ends. Commands that were verified before its end are still executed."""
        executed = 0
        while (block := await waiting.get()) is not None:
            answers = []
            for request in block:
                received = request.received
                executed += 1
                if executed % COMMANDS_AT_ONCE == 0:
                    if isinstance(received.command, ForwardPacket):  # a box to open, and a signature to check
                        await self.turns.wait()
                    else:
                        await asyncio.sleep(0)  # a store that waits for nothing would keep others waiting
                direct = self._direct if is_direct(connection.session.dialect) else None
                response = await self._execute(request, direct)
                answers.append(connection.session.response(received.corr_id, received.entity_id, response))
            with suppress(ConnectionLost):
                await connection.send(answers)

    async def _execute(self, request: NtfRequest[Command], direct: DirectCommands | None) -> Response:
        try:
            if isinstance(request, TokenRequest):
                await self._note_use(request.token)
            response = await self._table.execute(request)
            return response if direct is None else await direct.with_key(response)
        except StoreError as failure:
            return Refused(self._store_failed(failure))

    async def _note_use(self, token: TokenRecord) -> None:
        """Note the day on which the token was used, so that unused tokens can be found."""
        now = self._state.clock.now()
        day = now - now % 86_400
        if token.updated_at != day:
            await self._state.store.note_use(token.token_id, day)

    def _store_failed(self, failure: StoreError) -> StoreFault:
        """Count and log the failure. The client gets a short fixed text, not what the database said."""
        self._state.counters.store_errors += 1
        logger.error("the store failed: %s", failure)
        return StoreFault("the store is not available, try again")


async def _pong(_request: NtfRequest[Ping]) -> Response:
    return Pong()
