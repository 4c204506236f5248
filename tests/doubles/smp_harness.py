"""A real SMP router on real TLS, and a client that sees every block: for tests of what a router does.

The client sends what it is told to, right or wrong, and reads block by block. `ask` puts events that come before the
answer aside; `event` and `nothing` look there first.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from tests.doubles.routers import HOST, make_credentials
from tocsin.crypto.boxes import box_key
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import (
    AuthPrivateKey,
    Ed448PrivateKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
)
from tocsin.operate.randomness import Randomness
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import ClientSession, ServiceRole
from tocsin.protocol.smp.delivered_messages import (
    DeliveredMessage,
    NotificationMeta,
    QuotaMarker,
    unseal_delivered,
    unseal_meta,
)
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.queue_modes import (
    LinkRequest,
    NotifierKeys,
    QueueMode,
    QueueRequest,
    SubscriptionMode,
)
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    CreateQueue,
    EnableNotifications,
    GetMessage,
    SecureQueue,
    Subscribe,
)
from tocsin.protocol.smp.responses import (
    MessageReceived,
    NotificationReceived,
    NotificationsEnabled,
    QueueCreated,
)
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import SmpEvents
from tocsin.smp_router.settings.settings import SmpProxySettings, SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.workers.worker_processes import ConnectionWorkers
from tocsin.transport.client_sessions import ClientConnection, DialSettings, ServiceIdentity, dial_smp
from tocsin.wire.versions import VersionRange

R = TypeVar("R", bound=Response)

PATIENCE: Final = 5.0
"""Seconds after which something that must come is given up."""
QUIET: Final = 0.3
"""Seconds in which something that must not come would have come."""
START: Final = 1_700_000_000

WORKERS_VARIABLE: Final = "TOCSIN_TEST_SMP_WORKERS"
"""If set, routers of these tests have so many workers."""

OK: Final = Done()
AUTH: Final = Refused(ErrorCode.AUTH)
BLOCK: Final = Refused(ErrorCode.BLOCK)
CRYPTO: Final = Refused(ErrorCode.CRYPTO)
INTERNAL: Final = Refused(ErrorCode.INTERNAL)
LARGE_MSG: Final = Refused(ErrorCode.LARGE_MSG)
NO_MSG: Final = Refused(ErrorCode.NO_MSG)
QUOTA: Final = Refused(ErrorCode.QUOTA)
SERVICE: Final = Refused(ErrorCode.SERVICE)
SESSION: Final = Refused(ErrorCode.SESSION)
HAS_AUTH: Final = Refused(CommandFault.HAS_AUTH)
NO_AUTH: Final = Refused(CommandFault.NO_AUTH)
NO_ENTITY: Final = Refused(CommandFault.NO_ENTITY)
PROHIBITED: Final = Refused(CommandFault.PROHIBITED)
SYNTAX: Final = Refused(CommandFault.SYNTAX)
UNKNOWN: Final = Refused(CommandFault.UNKNOWN)

_SIG0: Final = base64.b64decode(
    "e8JK+8V3fq6kOLqco/SaKlpNaQ7i1gfOrXoqekEl42u4mF8Bgu14T5j0189CGcUhJHw2RwCMvON+qbvQ9ecJAA=="
)


@dataclass(frozen=True)
class FixedAuthorization:
    """In place of a key: these bytes, whatever is to be authorized."""

    auth: bytes

    def sign(self, _message: bytes) -> bytes:
        return self.auth


def authorized_with(auth: bytes) -> AuthPrivateKey:
    return cast(AuthPrivateKey, FixedAuthorization(auth))


SIG0: Final = authorized_with(_SIG0)
"""A well-formed Ed25519 signature that belongs to nothing (smp-tests.md 2)."""


class Raw(Command):
    """Any bytes in place of a command; signed by the given key only, also in a service session."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self, version: int) -> bytes:
        return self._data


def ed448() -> Ed448PrivateKey:
    return Ed448PrivateKey(os.urandom(57))


def ed25519() -> Ed25519PrivateKey:
    return Ed25519PrivateKey(os.urandom(32))


def x25519() -> X25519PrivateKey:
    return X25519PrivateKey(os.urandom(32))


@cache
def router_credentials() -> Credentials:
    """Making certificates is slow and nothing depends on their being new."""
    return make_credentials()


_of_stores: WeakKeyDictionary[SmpMemoryStore, Credentials] = WeakKeyDictionary()
_of_ports: dict[int, Credentials] = {}


def credentials_at(port: int, store: SmpMemoryStore | None = None) -> Credentials:
    """Two routers have two identities. A router that starts again, with its store or at its port, has its old one."""
    known = _of_ports.get(port) or (None if store is None else _of_stores.get(store)) or make_credentials()
    if store is not None:
        _of_stores[store] = known
    return known


def listens_at(port: int, credentials: Credentials) -> None:
    _of_ports[port] = credentials


@cache
def service_credentials(name: str = "a service") -> Credentials:
    """The same for the same name."""
    return make_credentials()


@dataclass
class HeldClock:
    """Stands still until it is moved."""

    time: int = START

    def now(self) -> int:
        return self.time


@dataclass(frozen=True)
class Notifier:
    """Credentials of a queue's notifications, both sides' of them."""

    notifier_id: bytes
    key: AuthPrivateKey
    secret: bytes

    def meta(self, notification: Response) -> NotificationMeta:
        assert isinstance(notification, NotificationReceived)
        return unseal_meta(box_key(self.secret), notification.nonce, notification.sealed_meta)


@dataclass(frozen=True)
class Queue:
    """A queue as its recipient knows it, and the key of its sender once it is secured."""

    created: QueueCreated
    key: AuthPrivateKey
    secret: bytes
    sender_key: AuthPrivateKey | None = None

    @property
    def recipient_id(self) -> bytes:
        return self.created.recipient_id

    @property
    def sender_id(self) -> bytes:
        return self.created.sender_id

    def delivered(self, response: Response) -> DeliveredMessage | QuotaMarker:
        assert isinstance(response, MessageReceived), response
        return unseal_delivered(box_key(self.secret), response.message_id, response.sealed)

    def body(self, response: Response) -> bytes:
        """What the message decrypts to."""
        delivered = self.delivered(response)
        assert isinstance(delivered, DeliveredMessage)
        return delivered.body


class Received(NamedTuple):
    corr_id: bytes
    entity_id: bytes
    response: Response


class Asked(NamedTuple):
    """One command of a block."""

    command: Command
    entity_id: bytes = b""
    key: AuthPrivateKey | None = None
    corr_id: bytes | None = None


class SmpTestClient:
    """One connection to a router."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._aside: deque[Received] = deque()

    @property
    def session(self) -> ClientSession:
        return self.connection.session

    @property
    def service_id(self) -> bytes:
        assert self.session.service is not None
        return self.session.service.service_id

    async def send(self, *commands: Asked) -> list[bytes]:
        """All in one block; returns their correlation ids."""
        corr_ids = [os.urandom(24) if each.corr_id is None else each.corr_id for each in commands]
        await self.connection.send(
            [
                self.session.request(corr_id, each.entity_id, each.command, each.key)
                for corr_id, each in zip(corr_ids, commands, strict=True)
            ]
        )
        return corr_ids

    async def block(self) -> list[Received]:
        """Everything in the next block."""
        async with asyncio.timeout(PATIENCE):
            return await self._read()

    async def _read(self) -> list[Received]:
        received = []
        for corr_id, entity_id, response in await self.connection.receive():
            assert isinstance(response, Response), response
            received.append(Received(corr_id, entity_id, response))
        return received

    async def ask(
        self,
        command: Command,
        entity_id: bytes = b"",
        key: AuthPrivateKey | None = None,
        *,
        corr_id: bytes | None = None,
    ) -> Response:
        """The answer to one command in a block of its own: it must repeat both ids."""
        [sent] = await self.send(Asked(command, entity_id, key, corr_id))
        while True:
            answer = None
            for received in await self.block():
                same = received.corr_id == sent and (sent != b"" or received.entity_id == entity_id)
                if answer is None and same:
                    answer = received
                else:
                    self._aside.append(received)
            if answer is not None:
                assert answer.entity_id == entity_id
                return answer.response

    async def expect(
        self,
        kind: type[R],
        command: Command,
        entity_id: bytes = b"",
        key: AuthPrivateKey | None = None,
        *,
        corr_id: bytes | None = None,
    ) -> R:
        """As `ask`, for an answer of this kind."""
        answer = await self.ask(command, entity_id, key, corr_id=corr_id)
        assert isinstance(answer, kind), answer
        return answer

    async def event(self) -> tuple[bytes, Response]:
        """Entity id and event: the next one, whatever it is."""
        while not self._aside:
            self._aside.extend(await self.block())
        received = self._aside.popleft()
        assert received.corr_id == b""
        return received.entity_id, received.response

    def events(self) -> list[Received]:
        """Take the events that came before the answers so far."""
        came = list(self._aside)
        self._aside.clear()
        return came

    async def nothing(self) -> None:
        """Nothing is there and nothing comes."""
        assert not self._aside
        try:
            async with asyncio.timeout(QUIET):
                unexpected = await self._read()
        except TimeoutError:
            return
        raise AssertionError(f"{unexpected} came")

    async def close(self) -> None:
        await self.connection.close(1.0)

    def reset(self) -> None:
        """Break the connection: unlike closing it, this may throw away what had arrived."""
        linger = struct.pack("ii", 1, 0)
        self.connection._connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.abort()

    # What tests do again and again

    async def new_queue(
        self,
        key: AuthPrivateKey | None = None,
        *,
        mode: QueueMode | None = QueueMode.MESSAGING,
        subscription: SubscriptionMode = SubscriptionMode.SUBSCRIBE,
        password: bytes | None = None,
        corr_id: bytes | None = None,
    ) -> Queue:
        key, dh_key = key or ed25519(), x25519()
        command = create_command(key, dh_key, mode=mode, subscription=subscription, password=password)
        created = await self.expect(QueueCreated, command, key=key, corr_id=corr_id)
        return Queue(created, key, dh_key.agree(created.dh_key))

    async def secured_queue(
        self,
        key: AuthPrivateKey | None = None,
        sender_key: AuthPrivateKey | None = None,
        *,
        subscription: SubscriptionMode = SubscriptionMode.SUBSCRIBE,
    ) -> Queue:
        queue = await self.new_queue(key, subscription=subscription)
        sender_key = sender_key or ed25519()
        assert await self.ask(SecureQueue(sender_key.public), queue.recipient_id, queue.key) == OK
        return replace(queue, sender_key=sender_key)

    async def send_message(self, queue: Queue, body: bytes, *, notify: bool = False) -> Response:
        """SEND, signed if the queue is secured."""
        return await self.ask(send_command(body, notify=notify), queue.sender_id, queue.sender_key)

    async def message(self, queue: Queue) -> MessageReceived:
        """The next event, which must be a message of this queue."""
        entity_id, event = await self.event()
        assert entity_id == queue.recipient_id
        assert isinstance(event, MessageReceived), event
        return event

    async def acknowledge(self, queue: Queue, message: MessageReceived) -> Response:
        return await self.ask(AcknowledgeMessage(message.message_id), queue.recipient_id, queue.key)

    async def acknowledged(self, queue: Queue, message: MessageReceived) -> MessageReceived:
        """ACK that is answered with the next message."""
        answer = await self.acknowledge(queue, message)
        assert isinstance(answer, MessageReceived), answer
        return answer

    async def receive(self, queue: Queue, body: bytes) -> None:
        """The next message, which must be this one and the last, and its ACK."""
        message = await self.message(queue)
        assert queue.body(message) == body
        assert await self.acknowledge(queue, message) == OK

    async def subscribe(self, queue: Queue) -> Response:
        return await self.ask(Subscribe(), queue.recipient_id, queue.key)

    async def get(self, queue: Queue) -> Response:
        return await self.ask(GetMessage(), queue.recipient_id, queue.key)

    async def got(self, queue: Queue) -> MessageReceived:
        """GET that is answered with a message."""
        answer = await self.get(queue)
        assert isinstance(answer, MessageReceived), answer
        return answer

    async def subscribe_notifier(self, notifier: Notifier) -> Response:
        """NSUB"""
        return await self.ask(SubscribeNotifications(), notifier.notifier_id, notifier.key)

    async def enable_notifications(
        self, queue: Queue, key: AuthPrivateKey | None = None, dh_key: X25519PrivateKey | None = None
    ) -> Notifier:
        """NKEY"""
        key, dh_key = key or ed25519(), dh_key or x25519()
        command = EnableNotifications(NotifierKeys(key.public, dh_key.public))
        answer = await self.expect(NotificationsEnabled, command, queue.recipient_id, queue.key)
        return Notifier(answer.notifier.notifier_id, key, dh_key.agree(answer.notifier.dh_key))

    async def notification(self, notifier: Notifier) -> NotificationMeta:
        """The next event, which must be a notification of this notifier; what it says."""
        entity_id, event = await self.event()
        assert entity_id == notifier.notifier_id
        return notifier.meta(event)


def create_command(
    key: AuthPrivateKey,
    dh_key: X25519PrivateKey,
    *,
    mode: QueueMode | None = QueueMode.MESSAGING,
    link: LinkRequest | None = None,
    subscription: SubscriptionMode = SubscriptionMode.SUBSCRIBE,
    password: bytes | None = None,
    notifier: NotifierKeys | None = None,
) -> CreateQueue:
    """NEW"""
    request = None if mode is None else QueueRequest(mode, link)
    return CreateQueue(key.public, dh_key.public, password, subscription, request, notifier)


def send_command(body: bytes, *, notify: bool = False) -> SendMessage:
    return SendMessage(MessageFlags(notify), body)


def opened(dh_key: X25519PrivateKey, key: AuthPrivateKey, created: Response) -> Queue:
    """The queue that an IDS tells of."""
    assert isinstance(created, QueueCreated), created
    return Queue(created, key, dh_key.agree(created.dh_key))


@dataclass
class SmpHarness:
    """A running router and those who are connected to it."""

    running: RunningSmpRouter
    credentials: Credentials
    store: SmpMemoryStore
    clients: list[SmpTestClient] = field(default_factory=list)

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self.running.ports[0]), self.credentials.fingerprint)

    def peer_of(self, client: SmpTestClient) -> Peer:
        """The router's side of a connection."""
        session_id = client.session.session_id
        [peer] = [each for each in self.running.router.peers if each.session.session_id == session_id]
        return peer

    async def connect(
        self,
        version: int = 18,
        *,
        encrypted: bool = False,
        service: tuple[Credentials, ServiceRole] | None = None,
        alpn: tuple[str, ...] | None = None,
        proxy: bool = False,
    ) -> SmpTestClient:
        settings = DialSettings(
            connect_timeout=PATIENCE,
            versions=VersionRange(version, version),
            alpn=alpn,
            encrypt_blocks=encrypted,
            proxy=proxy,
        )
        # Real clients show role M from v19 on; routers take it from v16 on.
        identity = None if service is None else ServiceIdentity(*service, from_version=16)
        connection = await dial_smp(RouterAddress(Scheme.SMP, self.location), settings, identity)
        client = SmpTestClient(connection)
        self.clients.append(client)
        peers = self.running.router.peers
        # A worker tells the router's process of a connection a moment later.
        await until(lambda: any(each.session.session_id == client.session.session_id for each in peers))
        return client

    async def connect_service(
        self,
        name: str = "a service",
        role: ServiceRole = ServiceRole.NOTIFIER,
        *,
        version: int = 18,
        encrypted: bool = False,
    ) -> SmpTestClient:
        return await self.connect(version, encrypted=encrypted, service=(service_credentials(name), role))


@asynccontextmanager
async def smp_router(
    store: SmpMemoryStore | None = None,
    *,
    clock: HeldClock | None = None,
    randomness: Randomness | None = None,
    proxy: SmpProxySettings | None = None,
    events: SmpEvents | None = None,
    workers: int | None = None,
    **changes: Any,
) -> AsyncIterator[SmpHarness]:
    """The base configuration of smp-tests.md 1, with shorter intervals, and what `changes` says.

    So many `workers` have the connections; by default as many as the variable says.
    """
    workers = int(os.environ.get(WORKERS_VARIABLE, "0")) if workers is None else workers
    settings = SmpSettings(
        hosts=(HOST,),
        ports=(0,),
        store=None,
        message_quota=4,
        notification_interval=0.05,
        notification_confirm_after=0.0,
        end_interval=0.05,
        drain_seconds=1.0,
        proxy=proxy or SmpProxySettings(enabled=False, remember_failure=1.0),
    )
    settings, store = replace(settings, **changes), store or SmpMemoryStore()
    credentials = credentials_at(settings.ports[0], store)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            running_smp_router(
                settings,
                credentials,
                store,
                clock=clock,
                randomness=randomness,
                events=events,
                workers=ConnectionWorkers(settings, workers) if workers else None,
            )
        )
        harness = SmpHarness(running, credentials, store)
        for port in running.ports:
            listens_at(port, credentials)
        yield harness
        for client in harness.clients:
            client.connection.abort()
        store.check_indices()


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds, which it must soon."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - conditions on other tasks' data, which tell nobody
            await asyncio.sleep(0.005)
