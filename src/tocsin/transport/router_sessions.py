"""Sessions of routers: their side of the handshakes on an accepted connection (smp.md 4.3, 4.4; ntf.md 1.4)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import (
    Ed448PrivateKey,
    Ed25519PrivateKey,
    SigningPrivateKey,
    X25519PrivateKey,
    private_key_from_der,
)
from tocsin.errors import BadKey, DecodeError, HandshakeFault, HandshakeRefused, HandshakeTimeout
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.direct.dialects import offered_alpn, spoken
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.handshake import NtfRouterHandshake
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import BlockCoder, ReceivedCommand, RefusedCommand, RouterSession, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.router_handshake import ServiceClaim, ServiceRefused, SmpRouterHandshake
from tocsin.transport.block_connection import BlockConnection
from tocsin.wire.versions import VersionRange

HELLO_SECONDS: Final = 120.0
"""Time for the hellos above TLS (smp.md 4.2)."""
WEB_ALPN: Final = ("h2", "http/1.1")
"""Accepted in addition to the protocol's own: clients on port 443 offer these (smp.md 2.1)."""

ServiceLookup: TypeAlias = Callable[[ServiceRole, bytes], Awaitable[bytes | None]]
"""Role and fingerprint to service id, made and stored if new; None if known in another role."""


@dataclass(frozen=True, slots=True)
class RouterIdentity:
    """A router's credentials, and the versions it offers."""

    dialect: Dialect
    credentials: Credentials
    versions: VersionRange
    signing_key: SigningPrivateKey = field(repr=False)
    direct: bool = False
    """Whether direct notifications are offered."""

    @classmethod
    def create(
        cls,
        dialect: Dialect,
        credentials: Credentials,
        versions: VersionRange | None = None,
        *,
        direct: bool = False,
    ) -> RouterIdentity:
        """Raises BadKey if the certificate's key cannot sign session keys."""
        key = private_key_from_der(credentials.private_key)
        if not isinstance(key, Ed25519PrivateKey | Ed448PrivateKey):
            raise BadKey("a router's certificate needs an Ed25519 or Ed448 key")
        return cls(dialect, credentials, versions or dialect.supported, key, direct)

    @property
    def alpn(self) -> tuple[str, ...]:
        own = offered_alpn(self.dialect, self.versions) if self.direct else (self.dialect.alpn,)
        return (*own, *WEB_ALPN)


AnswerCommand: TypeAlias = Callable[[RouterSession, ReceivedCommand], Response]


class SessionBlocks(Protocol):
    """A connection of blocks, as far as a session needs it: a `BlockConnection`, or one that another process has."""

    @property
    def peer_chain(self) -> tuple[bytes, ...]: ...
    @property
    def received_at(self) -> float: ...
    @property
    def sent_at(self) -> float: ...
    @property
    def blocks_written(self) -> int: ...
    @property
    def blocks_acknowledged(self) -> int | None: ...
    @property
    def ended_in_order(self) -> bool: ...
    @property
    def write_room(self) -> int: ...
    async def read_block(self) -> bytes: ...
    def read_block_nowait(self) -> bytes | None: ...
    async def until_woken(self) -> None: ...
    def wake_reader(self) -> bool: ...
    async def wait_for_room(self) -> None: ...
    def try_write_block(self, block: bytes) -> bool: ...
    def check_not_aborted(self) -> None: ...
    def abort(self) -> None: ...


class RouterConnection:
    """The router's side of a connection after both handshakes. Blocks are encrypted and written in one order."""

    __slots__ = ("connection", "session")

    def __init__(self, connection: SessionBlocks, session: RouterSession) -> None:
        self.connection = connection
        self.session = session

    async def receive(self) -> list[ReceivedCommand | RefusedCommand]:
        """Return the commands of the next block; bad bytes are commands to refuse. Raises ConnectionLost."""
        return self.session.read_block(await self.connection.read_block())

    def receive_nowait(self) -> list[ReceivedCommand | RefusedCommand] | None:
        """Return the commands of a block that has already arrived, or None."""
        block = self.connection.read_block_nowait()
        return None if block is None else self.session.read_block(block)

    async def send(self, transmissions: Sequence[bytes]) -> None:
        """Send as many blocks as needed, waiting while the write queue is full. Raises ConnectionLost."""
        for batch in self.session.batches(transmissions):
            await self.connection.wait_for_room()
            self.connection.try_write_block(self.session.to_block(batch))

    def try_send(self, transmissions: Sequence[bytes]) -> bool:
        """Send all without waiting. Sends none and returns False if the write queue has no room for all."""
        batches = list(self.session.batches(transmissions))
        if self.connection.write_room < len(batches):
            return False
        return all(self.connection.try_write_block(self.session.to_block(batch)) for batch in batches)

    async def serve(self, answer: AnswerCommand) -> None:
        """Answer the commands of each block in their order, one block after the other. Raises ConnectionLost.

        Enough for routers that can answer at once. Transmissions that cannot be read are refused here.
        """
        while True:
            received: list[ReceivedCommand | RefusedCommand] | None = await self.receive()
            while received is not None:
                await self.send([self._answer(each, answer) for each in received])
                received = self.receive_nowait()

    def _answer(self, received: ReceivedCommand | RefusedCommand, answer: AnswerCommand) -> bytes:
        if isinstance(received, RefusedCommand):
            response: Response = Refused(received.error)
        else:
            response = answer(self.session, received)
        return self.session.response(received.corr_id, received.entity_id, response)


async def no_services(_role: ServiceRole, _fingerprint: bytes) -> bytes | None:
    """Refuse every service, for routers without services."""
    return None


async def accept_smp(
    connection: BlockConnection,
    identity: RouterIdentity,
    find_service: ServiceLookup = no_services,
    *,
    hello_seconds: float = HELLO_SECONDS,
) -> RouterConnection:
    """Raises HandshakeRefused, HandshakeTimeout or ConnectionLost; the caller closes the connection."""
    dialect = spoken(SMP, connection.alpn)
    handshake = SmpRouterHandshake(
        identity.credentials,
        identity.signing_key,
        dialect.offered(connection.alpn, identity.versions),
        connection.session_id,
        connection.peer_chain,
        X25519PrivateKey(os.urandom(32)),
        dialect,
    )
    plain = BlockCoder(SMP.block_size)

    async def finish(client_hello: bytes) -> RouterSession:
        try:
            accepted = handshake.accept(client_hello, datetime.now(UTC))
            if not isinstance(accepted, ServiceClaim):
                return accepted
            service_id = await find_service(accepted.role, accepted.fingerprint)
            if service_id is None:
                raise accepted.refuse()
            answer, session = accepted.accept(service_id)
        except ServiceRefused as refusal:
            await connection.write_block(plain.to_block(refusal.reply))
            raise
        await connection.write_block(plain.to_block(answer))
        return session

    return await _shake_hands(connection, plain, handshake.hello(), finish, hello_seconds)


async def accept_ntf(
    connection: BlockConnection, identity: RouterIdentity, *, hello_seconds: float = HELLO_SECONDS
) -> RouterConnection:
    """Raises HandshakeRefused, HandshakeTimeout or ConnectionLost; the caller closes the connection."""
    dialect = spoken(NTF, connection.alpn)
    handshake = NtfRouterHandshake(
        identity.credentials,
        identity.signing_key,
        dialect.offered(connection.alpn, identity.versions),
        connection.session_id,
        X25519PrivateKey(os.urandom(32)),
        dialect,
    )

    async def finish(client_hello: bytes) -> RouterSession:
        return handshake.accept(client_hello)

    return await _shake_hands(
        connection, BlockCoder(NTF.block_size), handshake.hello(), finish, hello_seconds
    )


async def _shake_hands(
    connection: BlockConnection,
    plain: BlockCoder,
    hello: bytes,
    finish: Callable[[bytes], Awaitable[RouterSession]],
    hello_seconds: float,
) -> RouterConnection:
    try:
        async with asyncio.timeout(hello_seconds):
            await connection.write_block(plain.to_block(hello))
            client_hello = plain.from_block(await connection.read_block())
            return RouterConnection(connection, await finish(client_hello))
    except TimeoutError:
        raise HandshakeTimeout(f"no hello within {hello_seconds:g} s") from None
    except DecodeError as error:
        raise HandshakeRefused(HandshakeFault.PARSE, "the client's hello is not a padded block") from error
