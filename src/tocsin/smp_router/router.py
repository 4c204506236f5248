"""The SMP router: connections, the commands of their blocks, and what happens by the clock.

A connection's blocks are read and executed in order. Their answers wait, in order, until the changes they tell of
are on disk; meanwhile the next blocks are executed, so that one write serves many. At most `ANSWERS_WAITING` blocks
wait: then the connection is not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from tocsin.errors import ConnectionLost, HandshakeRefused, HandshakeTimeout
from tocsin.protocol.error_codes import ErrorCode, RouterError
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand, RefusedCommand, ServiceRole
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.recipient_commands import DeleteQueue, DisableNotifications, SubscribeService
from tocsin.protocol.smp.sender_commands import SendMessage
from tocsin.smp_router.direct.notifiers import DirectNotifiers
from tocsin.smp_router.direct.ntf_routers import NtfRouters
from tocsin.smp_router.direct.packet_outbox import PacketOutbox
from tocsin.smp_router.links import link_handlers
from tocsin.smp_router.messages import Messages
from tocsin.smp_router.notifications import NotificationDelivery, Notifiers
from tocsin.smp_router.proxy.forwarding import Forwarding
from tocsin.smp_router.proxy.proxy import Proxy
from tocsin.smp_router.queues import day_of, queue_handlers
from tocsin.smp_router.services import ReceiveServices
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.service_records import find_or_add_service
from tocsin.smp_router.session.verification import verify
from tocsin.smp_router.session.work import Execute, RouterState, Task
from tocsin.smp_router.store.records import QueueRecord
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_smp

ANSWERS_WAITING: Final = 64
SENDS_TOGETHER: Final = 16
"""Blocks of messages sent that are executed in one go, if they have arrived; then others have their turn."""
FEW_ANSWERS: Final = 4
"""With so many answers or fewer, the first message of a subscription shares their block (smp.md 9.2)."""


@dataclass(slots=True)
class _BlockAnswers:
    """What a block of commands gets, once its changes are on disk."""

    errors: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    slow: list[Task] = field(default_factory=list)
    """Commands that take their time; each is answered by itself, when it is done."""
    only_sends: bool = False
    """Nothing but messages sent, all authorized: such blocks in a row can be answered in one."""


def _joined(blocks: Iterable[_BlockAnswers]) -> _BlockAnswers:
    """For blocks of messages sent: their answers fit into one, and 16 KiB need not be sealed for each."""
    joined = _BlockAnswers()
    for block in blocks:
        joined.answers += block.answers
        joined.afterwards += block.afterwards
    return joined


class SmpRouter:
    """Everything but the listener and the timers."""

    def __init__(self, state: RouterState, identity: RouterIdentity) -> None:
        self._state = state
        self._identity = identity
        self.notifications = NotificationDelivery(state)
        self.messages = Messages(state, self.notifications)
        self.outbox = PacketOutbox(state, self.notifications.added)
        queues, notifiers = queue_handlers(state, self.outbox), Notifiers(state).handlers()
        self._handlers: dict[type[Command], Execute] = {
            **queues,
            **link_handlers(state),
            **self.messages.handlers(),
            **notifiers,
            **DirectNotifiers(state, self.outbox).handlers(
                disable=notifiers[DisableNotifications], delete=queues[DeleteQueue]
            ),
            **NtfRouters(state, identity.credentials.fingerprint).handlers(),
            RelayForwarded: Forwarding(state, self.execute).relay,
            Ping: lambda _task: Pong(),
        }
        self.proxy = Proxy(state)
        self._slow: dict[type[Command], Callable[[Task], Awaitable[Response]]] = {
            RequestProxySession: self.proxy.request_session,
            ForwardToRelay: self.proxy.forward,
            SubscribeService: ReceiveServices(state).subscribe,
        }
        self.peers: set[Peer] = set()

    async def handle(self, connection: BlockConnection) -> None:
        """One connection, from its hello to its end."""
        if connection.alpn is None and not self._state.settings.accept_without_alpn:
            self._state.counters.connections_refused += 1
            return
        try:
            accepted = await self._accept(connection)
        except (HandshakeRefused, HandshakeTimeout):
            self._state.counters.connections_refused += 1
            return
        self._state.counters.connections += 1
        peer = Peer(accepted)
        self.peers.add(peer)
        try:
            await self._serve(peer)
        finally:
            self.peers.discard(peer)
            self._state.subscriptions.drop(peer)
            self.notifications.drop(peer)

    async def _accept(self, connection: BlockConnection) -> RouterConnection:
        async def find_service(role: ServiceRole, fingerprint: bytes) -> bytes | None:
            return await self._find_service(role, fingerprint, connection.peer_chain)

        return await accept_smp(
            connection, self._identity, find_service, hello_seconds=self._state.settings.hello_seconds
        )

    async def _find_service(
        self, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
    ) -> bytes | None:
        service_id = find_or_add_service(self._state, role, fingerprint, certificates)
        await self._state.store.commit()
        return service_id

    async def _serve(self, peer: Peer) -> None:
        """Reads and executes; a second task answers while there is something to answer."""
        waiting: deque[_BlockAnswers] = deque()
        places = asyncio.Semaphore(self._state.settings.proxy.client_concurrency)
        answering: asyncio.Task[None] | None = None
        slow: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    blocks = self._execute_arrived(peer, await peer.connection.receive())
                    if not waiting and not self._state.store.uncommitted:
                        await self._finish(peer, blocks)
                    else:
                        waiting += blocks
                        if answering is None or answering.done():
                            answering = tasks.create_task(self._answer_all(peer, waiting))
                    for task in blocks[-1].slow:
                        await places.acquire()
                        running = tasks.create_task(self._run_slow(peer, task, places))
                        slow.add(running)
                        running.add_done_callback(slow.discard)
                    while answering is not None and len(waiting) >= ANSWERS_WAITING:
                        await asyncio.wait([answering])
            except ConnectionLost:
                for running in slow:
                    running.cancel()

    def _execute_arrived(
        self, peer: Peer, received: list[ReceivedCommand | RefusedCommand]
    ) -> list[_BlockAnswers]:
        """A block and, after one of messages sent, those that have arrived behind it."""
        blocks = [self._execute(peer, received)]
        while blocks[-1].only_sends and len(blocks) < SENDS_TOGETHER:
            behind = peer.connection.receive_nowait()
            if behind is None:
                break
            blocks.append(self._execute(peer, behind))
        return blocks

    def _execute(self, peer: Peer, received: list[ReceivedCommand | RefusedCommand]) -> _BlockAnswers:
        """All commands are verified against the state before the block, then executed in their order."""
        block = _BlockAnswers()
        session = peer.session
        self._state.counters.blocks_received += 1
        self._state.counters.commands += len(received)
        tasks: list[Task] = []
        unauthorized: list[bytes] = []
        for each in received:
            if isinstance(each, RefusedCommand):
                block.errors.append(session.response(each.corr_id, each.entity_id, Refused(each.error)))
                self._state.counters.command_errors += 1
                continue
            verified = verify(self._state.store, peer, session, each)
            if isinstance(verified, Task):
                tasks.append(verified)
            else:
                unauthorized.append(self._refusal(peer, each, verified))
        block.errors += unauthorized
        for task in tasks:
            if type(task.command) in self._slow:
                block.slow.append(task)
                continue
            response = self.execute(task) if len(tasks) == 1 else self.execute_later(task)
            if task.answered_later is not None:
                block.slow.append(task)
                continue
            block.answers.append(session.response(task.corr_id, task.entity_id, response))
            block.messages += [session.response(b"", entity_id, event) for entity_id, event in task.messages]
            block.afterwards += task.afterwards
        block.only_sends = not block.errors and all(type(task.command) is SendMessage for task in tasks)
        return block

    def execute(self, task: Task) -> Response:
        """A command that was verified just now."""
        if task.queue is not None:
            self._note_use(task, task.queue)
        return self._handlers[type(task.command)](task)

    def _note_use(self, task: Task, queue: QueueRecord) -> None:
        """Once a day: so that queues nobody uses can be told."""
        today = day_of(self._state.clock.now())
        if queue.updated_at != today:
            task.queue = replace(queue, updated_at=today)
            self._state.store.update_queue(task.queue)

    def execute_later(self, task: Task) -> Response:
        """A verified command; others of its block may have changed the queue since."""
        if task.queue is not None:
            task.queue = self._state.store.queue_by_recipient(task.queue.recipient_id)
            if task.queue is None:
                return Refused(ErrorCode.AUTH)
        return self.execute(task)

    async def _run_slow(self, peer: Peer, task: Task, places: asyncio.Semaphore) -> None:
        try:
            if task.answered_later is not None:
                response = await task.answered_later()
            else:
                response = await self._slow[type(task.command)](task)
            answer = peer.session.response(task.corr_id, task.entity_id, response)
            with suppress(ConnectionLost):
                await peer.connection.send([answer])
                if task.following is not None:
                    await task.following()
        finally:
            places.release()

    def _refusal(self, peer: Peer, received: ReceivedCommand, error: RouterError) -> bytes:
        self._state.counters.auth_failures += error is ErrorCode.AUTH
        return peer.session.response(received.corr_id, received.entity_id, Refused(error))

    async def _answer_all(self, peer: Peer, waiting: deque[_BlockAnswers]) -> None:
        """What others get of a command does not depend on whether its sender is still there."""
        while waiting:
            blocks = list(waiting)
            await self._state.store.commit()
            with suppress(ConnectionLost):
                await self._finish(peer, blocks)
            for _ in blocks:
                waiting.popleft()

    async def _finish(self, peer: Peer, blocks: list[_BlockAnswers]) -> None:
        """Raises ConnectionLost when all is done but the answering."""
        lost: ConnectionLost | None = None
        for only_sends, run in groupby(blocks, key=attrgetter("only_sends")):
            for block in [_joined(run)] if only_sends else run:
                for effect in block.afterwards:
                    effect()
                try:
                    await self._answer(peer, block)
                except ConnectionLost as error:
                    lost = error
        if lost is not None:
            raise lost

    async def _answer(self, peer: Peer, block: _BlockAnswers) -> None:
        """Errors first, in a block of their own, then answers, then messages."""
        if block.errors:
            await peer.connection.send(block.errors)
        answers, messages = block.answers, block.messages
        if messages and len(answers) <= FEW_ANSWERS:
            answers, messages = [*answers, messages[0]], messages[1:]
        if answers:
            await peer.connection.send(answers)
        for message in messages:
            await peer.connection.send([message])
