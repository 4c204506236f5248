"""Our real router on a stage where everything it took from outside is what was recorded.

The router runs as always (`running_smp_router`), but its ids, keys and clock are given, and its connections are
`RecordedConnection`s: they have the session id, version and keys of a recorded session, so that even the recorded
signatures and authenticators are right. Of the reference's own keys only the public halves were recorded;
`MirroredKey` agrees from the other side, whose private halves were.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final, Self, cast

import pytest

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import HeldClock, router_credentials
from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey, X25519PublicKey, dh_key_from_der
from tocsin.protocol.messages import Command
from tocsin.protocol.sessions import BlockCoder, ClientSession, RouterSession, ServicePeer, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.settings.settings import SmpProxySettings, SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.connection_loss import BlockConnectionLost, LossReason
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, ServiceLookup, accept_smp
from tocsin.wire.padding import unpad
from tools.wire_vectors.files import Fields, Vector, read_folder
from tools.wire_vectors.recorded_sessions import ed25519_public_key, recorded_session

PATIENCE: Final = 5.0
VECTORS: Final = {vector.name: vector for vector in read_folder(Path(__file__).parents[1])}

RECORDED_VERSION = 18
"""The highest version of the reference that was recorded, 6.5.5."""


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a vector, at any depth."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


def _recorded_private_keys() -> Iterator[X25519PrivateKey]:
    for vector in VECTORS.values():
        for each in _objects(vector.fields.values):
            if each.get("alg") == "x25519" and "priv" in each:
                yield X25519PrivateKey(bytes.fromhex(each["priv"]))
            for name in ("dh_priv", "client_dh_priv"):
                if each.get(name):
                    yield X25519PrivateKey(bytes.fromhex(each[name]))


_PRIVATE_KEYS: Final = {key.public.raw: key for key in _recorded_private_keys()}


class MirroredKey:
    """The router's key of which only the public half is known.

    The secret shared with a client whose private key was not recorded is nonsense: what it encrypts cannot be
    compared.
    """

    def __init__(self, public: X25519PublicKey) -> None:
        self.public = public

    def agree(self, peer: X25519PublicKey) -> bytes:
        key = _PRIVATE_KEYS.get(peer.raw)
        return bytes(32) if key is None else key.agree(self.public)


def mirrored(public: X25519PublicKey) -> X25519PrivateKey:
    return cast(X25519PrivateKey, MirroredKey(public))


class RecordedRandomness:
    """Gives what was recorded, in the order in which our router asks; then anything."""

    def __init__(self) -> None:
        self.ids: deque[bytes] = deque()
        self.dh_keys: deque[X25519PrivateKey] = deque()

    def new_id(self) -> bytes:
        return self.ids.popleft() if self.ids else os.urandom(24)

    def new_dh_key(self) -> X25519PrivateKey:
        return self.dh_keys.popleft() if self.dh_keys else X25519PrivateKey(os.urandom(32))

    def will_give_keys(self, *der: bytes) -> None:
        self.dh_keys.extend(mirrored(dh_key_from_der(each)) for each in der)


class RecordedConnection:
    """In place of a `BlockConnection`: blocks come from the test and go to it."""

    blocks_acknowledged = None
    received_at = sent_at = 0.0
    write_room = 128
    peer_host = HOST

    def __init__(
        self,
        session: RouterSession | None = None,
        *,
        session_id: bytes = b"",
        alpn: str | None = SMP.alpn,
        peer_chain: tuple[bytes, ...] = (),
    ) -> None:
        """With a `session` there is no handshake."""
        self.session = session
        self.session_id = session_id if session is None else session.session_id
        self.alpn = alpn
        self.peer_chain = peer_chain
        self.blocks_written = self.blocks_received = 0
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    # What the router does

    async def read_block(self) -> bytes:
        block = await self._incoming.get()
        if block is None:
            raise BlockConnectionLost(LossReason.CLOSED_BY_PEER)
        self.blocks_received += 1
        return block

    def read_block_nowait(self) -> bytes | None:
        return None

    def check_not_aborted(self) -> None:
        pass

    async def wait_for_room(self) -> None:
        pass

    def try_write_block(self, block: bytes) -> bool:
        self.blocks_written += 1
        self._outgoing.put_nowait(block)
        return True

    async def write_block(self, block: bytes) -> None:
        self.try_write_block(block)

    def abort(self) -> None:
        self._incoming.put_nowait(None)

    # What the test does

    def feed(self, block: bytes) -> None:
        self._incoming.put_nowait(block)

    async def block(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self._outgoing.get()

    async def content(self) -> bytes:
        """The next block without its padding; for sessions without encryption."""
        return unpad(await self.block())

    @property
    def unread(self) -> int:
        return self._outgoing.qsize()


class Actor:
    """A connection of the stage, with a client's session for commands that were not recorded."""

    def __init__(self, connection: RecordedConnection, client: ClientSession) -> None:
        self.connection = connection
        self.client = client

    async def replay(self, content: bytes) -> bytes:
        """The content of a recorded block; returns the content of the block that answers it."""
        self.connection.feed(BlockCoder(SMP.block_size).to_block(content))
        return await self.connection.content()

    async def ask(
        self, command: Command, entity_id: bytes, key: AuthPrivateKey | None, corr_id: bytes = b"\0" * 24
    ) -> bytes:
        """A command of ours; returns the content of the block that answers it."""
        request = self.client.request(corr_id, entity_id, command, key)
        self.connection.feed(self.client.to_block([request]))
        return await self.connection.content()

    async def content(self) -> bytes:
        return await self.connection.content()


class Stage:
    """A running router and what is given to it."""

    def __init__(
        self,
        running: RunningSmpRouter,
        store: SmpMemoryStore,
        clock: HeldClock,
        randomness: RecordedRandomness,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.running = running
        self.store = store
        self.clock = clock
        self.randomness = randomness
        self._tasks = tasks
        self.connections: list[RecordedConnection] = []

    def add_queue(self, queue: QueueRecord) -> None:
        assert self.store.add_queue(queue)

    def add_service(self, service: ServicePeer) -> None:
        if self.store.service(service.service_id) is None:
            record = ServiceRecord(service.service_id, service.role, (), service.fingerprint, self.clock.time)
            self.store.add_service(record)

    def open(self, connection: RecordedConnection) -> None:
        self.connections.append(connection)
        self._tasks.create_task(self.running.router.handle(cast(BlockConnection, connection)))

    def actor(self, vector: Vector, service: ServicePeer | None = None) -> Actor:
        """A connection with the session of the vector, without encryption."""
        recorded = recorded_session(vector)
        session_key = recorded.router_private_key
        if session_key is None and recorded.router_key is not None:
            session_key = mirrored(recorded.router_key)
        if service is not None:
            self.add_service(service)
        return self.connect(recorded.router(session_key, service), recorded.client())

    def stranger(self, version: int = 18) -> Actor:
        """A connection that was not recorded."""
        session_id, coder = os.urandom(32), BlockCoder(SMP.block_size)
        router = RouterSession(SMP, version, session_id, coder, None)
        return self.connect(router, ClientSession(SMP, version, session_id, coder, None))

    def encrypted(self, vector: Vector) -> RecordedConnection:
        """A connection that encrypts as the recorded one did."""
        recorded, chain = recorded_session(vector), vector.fields.object("chain")
        coder = BlockCoder(
            SMP.block_size,
            outgoing=BlockChain(chain.octets("s2c_init")),
            incoming=BlockChain(chain.octets("c2s_init")),
        )
        session = RouterSession(SMP, vector.version, recorded.session_id, coder, None)
        connection = RecordedConnection(session)
        self.open(connection)
        return connection

    def connect(self, session: RouterSession, client: ClientSession) -> Actor:
        connection = RecordedConnection(session)
        self.open(connection)
        return Actor(connection, client)

    async def flush(self) -> None:
        """END, ENDS and DELD are due."""
        await self.running.state.subscriptions.flush_late_events()

    async def notify(self) -> None:
        """NMSG are due."""
        await self.running.router.notifications.deliver()

    async def leave(self) -> None:
        """Everything that was written must have been looked at."""
        for connection in self.connections:
            connection.abort()
        await asyncio.sleep(0)
        assert [connection.unread for connection in self.connections] == [0] * len(self.connections)


def service_peer(service: Fields, role: ServiceRole, service_id: bytes | None = None) -> ServicePeer:
    known = service_id or service.octets("id")
    return ServicePeer(known, service.octets("fp"), role, ed25519_public_key(service.object("key")))


@asynccontextmanager
async def stage(
    patch: pytest.MonkeyPatch, *, identity: RouterIdentity | None = None, **changes: Any
) -> AsyncIterator[Stage]:
    """A router whose connections need no handshake if they bring a session along.

    With an `identity` it shows that one in the others' handshakes.
    """

    async def accept_recorded(
        connection: BlockConnection, own: RouterIdentity, find_service: ServiceLookup, **options: Any
    ) -> RouterConnection:
        session = cast(RecordedConnection, connection).session
        if session is None:
            return await accept_smp(connection, identity or own, find_service, **options)
        return RouterConnection(connection, session)

    patch.setattr("tocsin.smp_router.router.accept_smp", accept_recorded)
    settings = SmpSettings(
        hosts=(HOST,),
        ports=(0,),
        store=None,
        highest_version=RECORDED_VERSION,
        notification_interval=3600.0,
        end_interval=3600.0,
    )
    settings = replace(
        settings, **{"proxy": SmpProxySettings(remember_failure=1.0, public_relays_only=False), **changes}
    )
    store, clock, randomness = SmpMemoryStore(), HeldClock(), RecordedRandomness()
    running = running_smp_router(settings, router_credentials(), store, clock=clock, randomness=randomness)
    async with running as router, asyncio.TaskGroup() as tasks:
        on_stage = Stage(router, store, clock, randomness, tasks)
        try:
            yield on_stage
            await on_stage.leave()
        finally:
            for connection in on_stage.connections:
                connection.abort()
        store.check_indices()


def frozen_datetime(moment: datetime) -> type[datetime]:
    """`datetime` in a module that asks it for the time: certificates were valid when they were recorded."""

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cast(Self, moment)

    return Frozen
