"""The frames between a worker and the router's process, and the contents that are more than bytes of a block."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Self, TypeVar

import msgspec

from tocsin.crypto.boxes import BoxKey
from tocsin.crypto.keys import Ed25519PublicKey, X25519PrivateKey
from tocsin.errors import DecodeError
from tocsin.protocol.direct.dialects import spoken
from tocsin.protocol.sessions import BlockCoder, RouterSession, ServicePeer, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.transport.listener import ListenerLimits

T = TypeVar("T")

_encode: Final = msgspec.msgpack.encode


class FrameKind(IntEnum):
    """The kinds of frames. The first ones come from the router's process, the others from a worker."""

    START = 1
    """The worker's task: a `WorkerTask`."""
    SEND = 2
    """The content of a block to send."""
    CONSUMED = 3
    """How many blocks of a connection the router has read; this many more may come."""
    WATCH = 4
    """Report from now on how much the connection's peer has acknowledged."""
    CLOSE = 5
    """The router has finished with the connection: send what waits, then close it."""
    ABORT = 6
    """Close the connection at once."""
    SERVICE = 7
    """The answer to `FIND_SERVICE`: an id, or nothing."""
    STOP = 8
    """Accept no more connections, end all that are open, and exit."""

    SERVING = 20
    """The worker has begun to accept connections."""
    FIND_SERVICE = 21
    """A service has said hello: a `ServiceQuestion`."""
    OPENED = 22
    """A connection whose hellos are done: an `OpenedConnection`."""
    REFUSED = 23
    """A connection was closed because of its hello."""
    RECEIVED = 24
    """The content of a block that arrived."""
    PROGRESS = 25
    """How many blocks the system has taken, and its peer acknowledged: a `Progress`."""
    ENDED = 26
    """Nothing more will arrive on a connection: an `EndedConnection`."""
    COUNTS = 27
    """The counts of the listener of a port, which is in place of the number of a connection."""


class WorkerTask(msgspec.Struct, frozen=True):
    """The task of a worker. It reads no configuration, so all workers do the same."""

    chain: tuple[bytes, ...]
    """The router's certificates, and the key of the first one."""
    private_key: bytes
    versions: tuple[int, int]
    direct: bool
    """Whether direct notifications are offered."""
    request_client_certificates: bool
    accept_without_alpn: bool
    hello_seconds: float
    limits: ListenerLimits
    sockets: Mapping[int, list[int]]
    """File descriptors of the listening sockets, by port."""
    log_level: int
    log_tls_errors: bool

    def __repr__(self) -> str:
        """Omit the key."""
        return f"WorkerTask(sockets={self.sockets})"


class ServiceQuestion(msgspec.Struct, frozen=True):
    """A service's hello, which only the router can answer: it knows all services."""

    role: bytes
    fingerprint: bytes
    certificates: tuple[bytes, ...]


class OpenedService(msgspec.Struct, frozen=True):
    """The service at the other end of a connection."""

    service_id: bytes
    fingerprint: bytes
    role: bytes
    session_key: bytes


class OpenedConnection(msgspec.Struct, frozen=True):
    """A connection whose hellos are done."""

    alpn: str | None
    version: int
    session_id: bytes
    session_key: bytes | None
    forwarding_key: bytes | None
    service: OpenedService | None
    peer_chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Omit the keys."""
        return f"OpenedConnection(version={self.version})"

    @classmethod
    def of(cls, session: RouterSession, alpn: str | None, peer_chain: tuple[bytes, ...]) -> Self:
        service, key = session.service, session.session_key
        return cls(
            alpn,
            session.version,
            session.session_id,
            None if key is None else key.raw,
            session.forwarding_key,
            None
            if service is None
            else OpenedService(
                service.service_id, service.fingerprint, service.role.value, service.session_key.raw
            ),
            peer_chain,
        )

    def session(self) -> RouterSession:
        """Return the session as the router needs it: its contents are blocks already, and the worker's to make."""
        key, service = self.session_key, self.service
        session = RouterSession(
            spoken(SMP, self.alpn),
            self.version,
            self.session_id,
            ContentCoder(SMP.block_size),
            None if key is None else X25519PrivateKey(key),
        )
        if self.forwarding_key is not None:
            session.forwarding_key = BoxKey(self.forwarding_key)
        if service is not None:
            session.service = ServicePeer(
                service.service_id,
                service.fingerprint,
                ServiceRole(service.role),
                Ed25519PublicKey(service.session_key),
            )
        return session


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Blocks of a connection, counted from its first after the hellos."""

    taken: int
    """Blocks that the system has taken."""
    acknowledged: int | None
    """Blocks that the peer's system has received for certain. None if it is not known."""


class EndedConnection(msgspec.Struct, frozen=True, array_like=True):
    """A connection on which nothing more will arrive."""

    lost: bool
    """Whether nothing can be sent on it either."""
    ended_in_order: bool
    progress: Progress


class ContentCoder(BlockCoder):
    """Stands in for the coder of blocks where a worker makes them: contents come and go as they are."""

    def to_block(self, content: bytes) -> bytes:
        return content

    def from_block(self, block: bytes) -> bytes:
        return block


def encoded(message: msgspec.Struct) -> bytes:
    return _encode(message)


def decoded(content: bytes, kind: type[T]) -> T:
    """Raises DecodeError."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"not a {kind.__name__}: {error}") from error
