"""The SMP router: its connections, and the commands of their blocks.

A connection's blocks are read and executed in order, in slices of time (`transport.turns`). Their answers wait, in
order, until the changes are on disk. Meanwhile the next blocks are executed, so that one write serves many. One task
does both: a block that arrives and a write that ends wake it. When `ANSWERS_WAITING` blocks or `ANSWER_BYTES_WAITING`
bytes of answers wait, it reads no further block until they are on disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tocsin.errors import (
    ConnectionLost,
    HandshakeRefused,
    HandshakeTimeout,
    StoreUnavailable,
)
from tocsin.protocol.direct.smp_responses import PacketStatus, QueueAssociated
from tocsin.protocol.error_codes import ErrorCode, RouterError
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand, RefusedCommand, ServiceRole
from tocsin.protocol.smp.names import ResolveName
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.recipient_commands import SubscribeService
from tocsin.protocol.smp.sender_commands import SendMessage
from tocsin.smp_router.direct.notifiers import DirectNotifierCommands
from tocsin.smp_router.direct.ntf_routers import NtfRouterCommands
from tocsin.smp_router.direct.packet_outbox import PacketOutbox
from tocsin.smp_router.links import LinkCommands
from tocsin.smp_router.messages import MessageCommands
from tocsin.smp_router.names.name_commands import NameCommands
from tocsin.smp_router.notification_delivery import NotificationDelivery
from tocsin.smp_router.notifications import NotifierCommands
from tocsin.smp_router.proxy.proxy import Proxy, RelayCommands
from tocsin.smp_router.queues import QueueCommands, day_of
from tocsin.smp_router.services import ServiceCommands
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import (
    AnswerWithFate,
    AnswerWithName,
    Effect,
    PushMessage,
    PushNotifications,
    SendBacklog,
    SendEvent,
    SmpCommandTable,
    SmpQueueRequest,
    SmpRequest,
    SmpState,
)
from tocsin.smp_router.session.service_records import find_service
from tocsin.smp_router.session.verification import Verified, verify_in_steps
from tocsin.smp_router.statistics.counters import count_block, count_refusal
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_smp
from tocsin.transport.turns import Turn, Turns

ANSWERS_WAITING: Final = 64
ANSWER_BYTES_WAITING: Final = 2_097_152
"""Every command of a block may be answered with a message of 16 KiB."""
SENDS_TOGETHER: Final = 16
"""Blocks of SENDs that are executed together if they have arrived; then other tasks get their turn."""
FEW_ANSWERS: Final = 4
"""Up to this many answers share their block with the first message of a subscription (smp.md 9.2)."""


class _SlowRequest(NamedTuple):
    request: SmpRequest[Any]
    pending: Response | None
    """The answer that lacks the fate of a packet or a name; None if a slow handler gives the answer."""

    @property
    def takes_place(self) -> bool:
        """Whether it is among those that a connection has a few of at a time. Names have a limit of their own."""
        return not any(type(effect) is AnswerWithName for effect in self.request.effects)


@dataclass(slots=True)
class _BlockAnswers:
    """The answers and effects of a block of commands, once its changes are on disk."""

    errors: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    """Performed before the answers."""
    slow: list[_SlowRequest] = field(default_factory=list)
    """Commands that take time. Each is answered separately when it is done."""
    size: int = 0
    """Bytes of answers and messages."""
    only_sends: bool = False
    """The block has only authorized SENDs: a run of such blocks is answered in one block."""
    last_change: int = 0
    """The number of changes of the store when it was executed. It is answered when they are durable."""


def _join(blocks: Iterable[_BlockAnswers]) -> _BlockAnswers:
    """Join the answers to blocks of SENDs: they fit into one block, which saves sealing 16 KiB for each."""
    joined, *others = blocks
    for block in others:
        joined.answers += block.answers
        joined.effects += block.effects
    return joined


def _too_much(waiting: deque[_BlockAnswers]) -> bool:
    return len(waiting) >= ANSWERS_WAITING or sum(block.size for block in waiting) >= ANSWER_BYTES_WAITING


class SmpRouter:
    """Serves connections. The listener and the timers are in `running_router`."""

    def __init__(self, state: SmpState, identity: RouterIdentity) -> None:
        self._state = state
        self._identity = identity
        self.notifications = NotificationDelivery(state)
        self.messages = MessageCommands(state)
        self.outbox = PacketOutbox(state, self.notifications.push)
        self.proxy = Proxy(state)
        self.names = NameCommands(state)
        self._services = ServiceCommands(state)
        self._table = self._command_table()
        self._slow: dict[type[Command], Callable[[Any], Awaitable[Response]]] = {
            RequestProxySession: self.proxy.request_session,
            ForwardToRelay: self.proxy.forward,
            SubscribeService: self._services.subscribe,
        }
        self.peers: set[Peer] = set()
        self.turns = Turns()

    def _command_table(self) -> SmpCommandTable:
        state, table = self._state, SmpCommandTable()
        queues, notifiers = QueueCommands(state, self.outbox), NotifierCommands(state)
        queues.add_to(table)
        LinkCommands(state).add_to(table)
        self.messages.add_to(table)
        notifiers.add_to(table)
        direct = DirectNotifierCommands(state, self.outbox)
        direct.add_to(table, disable=notifiers.disable, delete=queues.delete)
        NtfRouterCommands(state, self._identity.credentials.fingerprint).add_to(table)
        table.add(RelayForwarded, RelayCommands(state, self.execute, self.names).relay)
        table.add(ResolveName, self.names.answer)
        table.add(Ping, lambda _request: Pong())
        return table

    async def handle(self, connection: BlockConnection) -> None:
        """Accept one connection and serve it."""
        if connection.alpn is None and not self._state.settings.accept_without_alpn:
            self.count_refused()
            return
        try:
            accepted = await self._accept(connection)
        except (HandshakeRefused, HandshakeTimeout):
            self.count_refused()
            return
        await self.serve(accepted)

    async def serve(self, accepted: RouterConnection) -> None:
        """Serve one connection, from its hello to its end."""
        self._state.counters.connections += 1
        peer = Peer(accepted)
        self.peers.add(peer)
        try:
            await self._serve(peer)
        finally:
            await self._state.subscriptions.drop(peer)
            await self.notifications.drop(peer)
            self.peers.discard(peer)

    async def _accept(self, connection: BlockConnection) -> RouterConnection:
        async def find_service(role: ServiceRole, fingerprint: bytes) -> bytes | None:
            return await self.find_service(role, fingerprint, connection.peer_chain)

        return await accept_smp(
            connection, self._identity, find_service, hello_seconds=self._state.settings.hello_seconds
        )

    async def find_service(
        self, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
    ) -> bytes | None:
        """Return the id of a service that says hello. None if its certificate is known with another role."""
        return find_service(self._state, role, fingerprint, certificates)

    def count_refused(self) -> None:
        """Count a connection that was closed because of its hello."""
        self._state.counters.connections_refused += 1

    async def _serve(self, peer: Peer) -> None:
        """Read and execute blocks, and answer them when their changes are durable."""
        waiting: deque[_BlockAnswers] = deque()
        places = asyncio.Semaphore(self._state.settings.proxy.client_concurrency)
        slow: set[asyncio.Task[None]] = set()
        turn = self.turns.turn()
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    received = await self._receive(peer, waiting, turn)
                    alone = self._state.store.trouble is not None and not await self._ready_for(received)
                    blocks = await self._execute_arrived(peer, received, turn)
                    if not waiting and (alone or not self._state.store.uncommitted):
                        await self._finish(peer, blocks, turn)
                    else:
                        waiting += blocks
                        self._state.store.wake_when_durable(peer.connection.connection.wake_reader)
                    for each in blocks[-1].slow:
                        if turn.is_over():
                            await turn.give_way()
                        if each.takes_place:
                            await places.acquire()
                        running = tasks.create_task(self._run_slow(peer, each, places, turn))
                        slow.add(running)
                        running.add_done_callback(slow.discard)
                    if _too_much(waiting):
                        await self._answer_all(peer, waiting, turn)
            except ConnectionLost:
                for running in slow:
                    running.cancel()
                await self._answer_all(peer, waiting, turn)

    async def _receive(
        self, peer: Peer, waiting: deque[_BlockAnswers], turn: Turn
    ) -> list[ReceivedCommand | RefusedCommand]:
        """Return the commands of the next block. Answers first, and meanwhile, what is durable."""
        connection, store = peer.connection, self._state.store
        while True:
            # Again, because a write that ends meanwhile wakes nobody.
            while waiting and waiting[0].last_change <= store.durable:
                await self._answer_durable(peer, waiting, turn)
            received = connection.receive_nowait()
            if received is not None:
                return received
            if not waiting:
                received = await connection.receive()
                turn.begin()
                return received
            if store.trouble is None:
                await connection.connection.until_woken()
                turn.begin()
            else:
                await self._answer_all(peer, waiting, turn)

    async def _ready_for(self, received: list[ReceivedCommand | RefusedCommand]) -> bool:
        """Wait until the store works, if a block needs it. Returns whether it does.

        Raises ConnectionLost if that takes too long. A lost connection is a temporary error for every client. ERR STORE
        is not: agents before 7.0 give up after it (v7.md 7.2).
        """
        if all(isinstance(each, RefusedCommand) or type(each.command) is Ping for each in received):
            return False
        await self._until_store_works()
        return True

    async def _until_store_works(self) -> None:
        try:
            await self._state.store.ready()
        except StoreUnavailable as error:
            self._state.counters.connections_without_store += 1
            raise ConnectionLost("the store has trouble") from error

    async def _execute_arrived(
        self, peer: Peer, received: list[ReceivedCommand | RefusedCommand], turn: Turn
    ) -> list[_BlockAnswers]:
        """Execute a block and, if it has only SENDs, the blocks that arrived behind it."""
        blocks = [await self._execute(peer, received, turn)]
        while blocks[-1].only_sends and len(blocks) < SENDS_TOGETHER and not turn.is_over():
            behind = peer.connection.receive_nowait()
            if behind is None:
                break
            try:
                blocks.append(await self._execute(peer, behind, turn))
            except ConnectionLost:
                break  # given up in a pause; the blocks before were executed and have effects
        return blocks

    async def _execute(
        self, peer: Peer, received: list[ReceivedCommand | RefusedCommand], turn: Turn
    ) -> _BlockAnswers:
        """Verify all commands, then execute them in order.

        Others run in between when the connection has used its slice. Without such a pause the commands are verified
        against the state before the block. Raises ConnectionLost, and executes none, if the connection was aborted
        meanwhile.
        """
        block = _BlockAnswers()
        session = peer.session
        self._state.counters.blocks_received += 1
        self._state.counters.commands += len(received)
        requests: list[SmpRequest[Any]] = []
        unauthorized: list[bytes] = []
        pauses = turn.pauses
        for each in received:
            if isinstance(each, RefusedCommand):
                block.errors.append(session.response(each.corr_id, each.entity_id, Refused(each.error)))
                self._state.counters.command_errors += 1
                continue
            verified = await self._verify(peer, each, turn)
            if isinstance(verified, SmpRequest):
                requests.append(verified)
            else:
                unauthorized.append(self._refusal(peer, each, verified))
        block.errors += unauthorized
        alone = len(requests) == 1
        for request in requests:
            if type(request.command) in self._slow:
                block.slow.append(_SlowRequest(request, None))
                continue
            if turn.is_over():
                await turn.give_way()
            fresh = alone and turn.pauses == pauses
            response = self.execute(request) if fresh else self._execute_later(request)
            self._add_answer(block, request, response)
        block.only_sends = not block.errors and all(type(each.command) is SendMessage for each in requests)
        if not block.only_sends:
            count_block(self._state.counters, (each.command for each in requests))
        block.last_change = self._state.store.appended
        return block

    async def _verify(self, peer: Peer, received: ReceivedCommand, turn: Turn) -> Verified:
        steps = verify_in_steps(self._state.store, peer, peer.session, received)
        while True:
            if turn.is_over():
                await turn.give_way()
                peer.connection.connection.check_not_aborted()
            try:
                next(steps)
            except StopIteration as end:
                verified: Verified = end.value
                return verified

    @staticmethod
    def _add_answer(block: _BlockAnswers, request: SmpRequest[Any], response: Response) -> None:
        session = request.session
        for effect in request.effects:
            if type(effect) is AnswerWithFate or type(effect) is AnswerWithName:
                block.slow.append(_SlowRequest(request, response))
                return
            if type(effect) is SendEvent:
                block.messages.append(session.response(b"", effect.entity_id, effect.event))
                block.size += len(block.messages[-1])
            else:
                block.effects.append(effect)
        block.answers.append(session.response(request.corr_id, request.entity_id, response))
        block.size += len(block.answers[-1])

    def execute(self, request: SmpRequest[Any]) -> Response:
        """Execute a command that was verified just now."""
        if isinstance(request, SmpQueueRequest):
            self._note_use(request)
        return self._table.execute(request)

    def _note_use(self, request: SmpQueueRequest[Any]) -> None:
        """Note the day on which the queue was used, so that unused queues can be found."""
        today = day_of(self._state.clock.now())
        if request.queue.updated_at != today:
            request.queue = replace(request.queue, updated_at=today)
            self._state.store.update_queue(request.queue)

    def _execute_later(self, request: SmpRequest[Any]) -> Response:
        """Execute a command after others, of its block or in a pause, which may have changed or deleted its queue."""
        if isinstance(request, SmpQueueRequest):
            queue = self._state.store.queue_by_recipient(request.queue.recipient_id)
            if queue is None:
                count_refusal(self._state.counters, request.command, ErrorCode.AUTH)
                return Refused(ErrorCode.AUTH)
            request.queue = queue
        return self.execute(request)

    async def _run_slow(self, peer: Peer, slow: _SlowRequest, places: asyncio.Semaphore, turn: Turn) -> None:
        request = slow.request
        try:
            if turn.is_over():  # many may begin at the same time
                await turn.give_way()
            if slow.pending is None:
                response = await self._slow[type(request.command)](request)
            else:
                response = await self._completed(request, slow.pending)
            if turn.is_over():  # many may end at the same time
                await turn.give_way()
            answer = peer.session.response(request.corr_id, request.entity_id, response)
            with suppress(ConnectionLost):
                await peer.connection.send([answer])
                for effect in request.effects:
                    if isinstance(effect, SendBacklog):
                        await self._services.send_backlog(peer, effect.service_id)
        finally:
            if slow.takes_place:
                places.release()
            else:
                peer.names_waiting -= 1

    async def _completed(self, request: SmpRequest[Any], pending: Response) -> Response:
        """Return the answer with the name or the fate that it waited for."""
        for effect in request.effects:
            if isinstance(effect, AnswerWithName):
                answer = await self.names.resolve(effect.name)
                return answer if effect.relayed is None else effect.relayed.sealed(answer)
            if isinstance(effect, AnswerWithFate):
                assert isinstance(pending, QueueAssociated | PacketStatus)
                return replace(pending, fate=await self.outbox.outcome(effect.notifier_id, effect.packet_id))
        return pending

    def _refusal(self, peer: Peer, received: ReceivedCommand, error: RouterError) -> bytes:
        count_refusal(self._state.counters, received.command, error)
        return peer.session.response(received.corr_id, received.entity_id, Refused(error))

    async def _answer_all(self, peer: Peer, waiting: deque[_BlockAnswers], turn: Turn) -> None:
        """Answer all waiting blocks, when their changes are durable."""
        if waiting:
            await self._committed(peer)
            turn.begin()
            await self._answer_durable(peer, waiting, turn)

    async def _answer_durable(self, peer: Peer, waiting: deque[_BlockAnswers], turn: Turn) -> None:
        """Answer the first blocks. Effects on others happen even if the sender of a command is gone."""
        durable, blocks = self._state.store.durable, []
        while waiting and waiting[0].last_change <= durable:
            blocks.append(waiting.popleft())
        with suppress(ConnectionLost):
            await self._finish(peer, blocks, turn)

    async def _committed(self, peer: Peer) -> None:
        """Return when the changes are on disk, however long that takes. A client need not wait longer than others."""
        try:
            await self._state.store.commit()
        except StoreUnavailable:
            peer.connection.connection.abort()
            await self._state.store.until_durable()

    async def _finish(self, peer: Peer, blocks: list[_BlockAnswers], turn: Turn) -> None:
        """Perform effects and answer. Raises ConnectionLost only after all effects are performed."""
        lost: ConnectionLost | None = None
        for only_sends, run in groupby(blocks, key=attrgetter("only_sends")):
            for block in [_join(run)] if only_sends else run:
                notifiers: list[bytes] = []
                for effect in block.effects:
                    if turn.is_over():
                        await turn.give_way()
                    if isinstance(effect, PushMessage):
                        self.messages.push_head(effect.recipient_id)
                    else:
                        assert isinstance(effect, PushNotifications), effect
                        notifiers.append(effect.notifier_id)
                if notifiers:
                    self.notifications.push(
                        *notifiers
                    )  # together: a block to an NTF router costs the same with many
                try:
                    await self._answer(peer, block, turn)
                except ConnectionLost as error:
                    lost = error
        if lost is not None:
            raise lost

    async def _answer(self, peer: Peer, block: _BlockAnswers, turn: Turn) -> None:
        """Send errors in a block of their own, then answers, then messages."""
        if block.errors:
            await peer.connection.send(block.errors)
        answers, messages = block.answers, block.messages
        if messages and len(answers) <= FEW_ANSWERS:
            answers, messages = [*answers, messages[0]], messages[1:]
        if answers:
            await peer.connection.send(answers)
        for message in messages:
            if turn.is_over():
                await turn.give_way()
            await peer.connection.send([message])
