"""Sessions of clients: dial an address, check the identity, shake hands (smp.md 2.2, 4.3; ntf.md 1.4)."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias

from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import (
    BadCertificateChain,
    ConnectionLost,
    DecodeError,
    HandshakeFault,
    HandshakeRefused,
    HandshakeTimeout,
    PeerIdentityMismatch,
)
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.direct.dialects import offered_alpn, spoken
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.handshake import NtfClientHandshake
from tocsin.protocol.sessions import BlockCoder, ClientSession, ReceivedResponse, ServiceRole
from tocsin.protocol.smp.client_handshake import AwaitingService, ServiceOffer, SmpClientHandshake
from tocsin.protocol.smp.dialect import SMP
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.socks5 import SocksProxy
from tocsin.transport.tls_contexts import client_context
from tocsin.wire.versions import VersionRange

BACKGROUND_CONNECT_SECONDS: Final = 45.0
INTERACTIVE_CONNECT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """Certificates with which a client becomes a service, and the role it takes."""

    credentials: Credentials
    role: ServiceRole
    from_version: int | None = None
    """The oldest version in which they are shown, instead of the role's own: v19 for messaging, else v16."""
    also_direct: bool = False
    """Whether they are shown in direct sessions too. An NTF router that registers there (NSRV) does not need them."""


@dataclass(frozen=True, slots=True)
class DialSettings:
    """Settings for dialing routers."""

    connect_timeout: float = BACKGROUND_CONNECT_SECONDS
    """Seconds for everything up to the session: names, TCP or SOCKS, TLS, hellos."""
    socks: SocksProxy | None = None
    onion_first: bool = True
    """Try .onion hosts of a router before its other hosts. Only with a SOCKS proxy."""
    versions: VersionRange | None = None
    """Fewer versions than we support, for tests and for old routers."""
    direct: bool = False
    """Offer direct notifications. With a router that does not support them, the session is an ordinary one."""
    alpn: tuple[str, ...] | None = None
    """Replaces the protocol's own. Empty for none: routers then offer only the legacy version."""
    encrypt_blocks: bool = True
    """SMP v11+: encrypt blocks inside TLS. Off only to talk to a raw test client."""
    proxy: bool = False
    """SMP: this connection forwards other clients' commands."""
    public_only: bool = False
    """Do not dial loopback, private or link-local addresses. For hosts that strangers name."""


ShakeHands: TypeAlias = Callable[[BlockConnection, bytes], Awaitable[ClientSession]]


class ClientConnection:
    """The client's side of a connection after both handshakes. Blocks are encrypted and written in one order."""

    __slots__ = ("_connection", "session")

    def __init__(self, connection: BlockConnection, session: ClientSession) -> None:
        self._connection = connection
        self.session = session

    @property
    def peer_chain(self) -> tuple[bytes, ...]:
        """The router's certificates, leaf first; they lead to the identity of its address."""
        return self._connection.peer_chain

    @property
    def received_at(self) -> float:
        """Loop time of the last block received."""
        return self._connection.received_at

    async def send(self, transmissions: Sequence[bytes]) -> None:
        """Send one block, waiting while the write queue is full. Raises ConnectionLost.

        The block is made only when there is room, and is queued in the same step: a cancelled call leaves the
        encryption chain where it was.
        """
        await self._connection.wait_for_room()
        self._connection.try_write_block(self.session.to_block(transmissions))

    async def receive(self) -> list[ReceivedResponse]:
        """Return the answers and events of the next block. Raises ConnectionLost or RemoteProtocolError."""
        return self.session.read_block(await self._connection.read_block())

    async def close(self, drain_for: float) -> None:
        await self._connection.close(drain_for)

    def abort(self, *, reset: bool = False) -> None:
        self._connection.abort(reset=reset)


async def dial_smp(
    address: RouterAddress, settings: DialSettings, service: ServiceIdentity | None = None
) -> ClientConnection:
    """Raises ConnectFailed, PeerIdentityMismatch, HandshakeRefused, HandshakeTimeout, ConnectionLost."""

    async def shake_hands(connection: BlockConnection, leaf_key: bytes) -> ClientSession:
        dialect = spoken(SMP, connection.alpn)
        offer = None
        # A router that did not ask for a certificate would refuse the service (smp.md 4.4). An NTF router that
        # registers in a direct session has its own key there.
        is_shown = service is not None and (dialect is SMP or service.also_direct)
        if service is not None and is_shown and connection.certificate_asked:
            offer = ServiceOffer(
                service.role,
                service.credentials,
                Ed25519PrivateKey(os.urandom(32)),
                service.from_version,
            )
        handshake = SmpClientHandshake(
            address.location.key_hash,
            connection.session_id,
            leaf_key,
            X25519PrivateKey(os.urandom(32)) if settings.encrypt_blocks or settings.proxy else None,
            settings.versions or SMP.supported,
            settings.proxy,
            offer,
            dialect,
        )
        plain = BlockCoder(SMP.block_size)
        hello, next_step, _ = handshake.answer(plain.from_block(await connection.read_block()))
        await connection.write_block(plain.to_block(hello))
        if isinstance(next_step, AwaitingService):
            return next_step.finish(plain.from_block(await connection.read_block()))
        return next_step

    credentials = None if service is None else service.credentials
    return await _establish(address, SMP, settings, credentials, shake_hands)


async def dial_ntf(address: RouterAddress, settings: DialSettings) -> ClientConnection:
    """Raises ConnectFailed, PeerIdentityMismatch, HandshakeRefused, HandshakeTimeout, ConnectionLost."""

    async def shake_hands(connection: BlockConnection, leaf_key: bytes) -> ClientSession:
        handshake = NtfClientHandshake(
            address.location.key_hash,
            connection.session_id,
            leaf_key,
            settings.versions or NTF.supported,
            spoken(NTF, connection.alpn),
        )
        plain = BlockCoder(NTF.block_size)
        hello, session = handshake.answer(plain.from_block(await connection.read_block()))
        await connection.write_block(plain.to_block(hello))
        return session

    return await _establish(address, NTF, settings, None, shake_hands)


async def _establish(
    address: RouterAddress,
    dialect: Dialect,
    settings: DialSettings,
    credentials: Credentials | None,
    shake_hands: ShakeHands,
) -> ClientConnection:
    deadline = asyncio.get_running_loop().time() + settings.connect_timeout
    connection = await dial(
        address.location.hosts,
        address.port_number,
        context=_context(_alpn(dialect, settings), credentials),
        block_size=dialect.block_size,
        connect_timeout=settings.connect_timeout,
        socks=settings.socks,
        onion_first=settings.onion_first,
        public_only=settings.public_only,
    )
    try:
        leaf_key = _identify(connection, address)
        async with asyncio.timeout_at(deadline):
            return ClientConnection(connection, await shake_hands(connection, leaf_key))
    except TimeoutError:
        connection.abort()
        raise HandshakeTimeout(
            f"{connection.peer_host}: no {dialect.name} handshake within {settings.connect_timeout:g} s"
        ) from None
    except ConnectionLost as error:
        raise ConnectionLost(
            f"{connection.peer_host} closed during the {dialect.name} handshake: {error}"
        ) from error
    except DecodeError as error:
        connection.abort()
        raise HandshakeRefused(
            HandshakeFault.PARSE, f"{connection.peer_host}: a hello that does not parse"
        ) from error
    except BaseException:
        connection.abort()
        raise


def _alpn(dialect: Dialect, settings: DialSettings) -> tuple[str, ...]:
    if settings.alpn is not None:
        return settings.alpn
    return offered_alpn(dialect, settings.versions) if settings.direct else (dialect.alpn,)


def _identify(connection: BlockConnection, address: RouterAddress) -> bytes:
    """Return the leaf's key if the whole chain leads from it to the identity that the address names."""
    try:
        return validate_server_chain(connection.peer_chain, address.location.key_hash, datetime.now(UTC))
    except BadCertificateChain as error:
        raise PeerIdentityMismatch(
            f"{connection.peer_host} is not the router of the address: {error}"
        ) from error


@lru_cache(maxsize=64)
def _context(alpn: tuple[str, ...], credentials: Credentials | None) -> ssl.SSLContext:
    """Keep contexts: making one costs more than a handshake. When full, the least recently used is dropped."""
    return client_context(alpn=alpn, credentials=credentials)
