"""Sessions: blocks to messages and back after the handshake, for both protocols and both sides.

Only a finished handshake returns a `ClientSession` or `RouterSession`, so no command can be written before it.
They hold the block encryption and must get the blocks in wire order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.boxes import TAG_BYTES, BoxKey
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.errors import BadBox, DecodeError, LocalProtocolError, RemoteProtocolError
from tocsin.protocol.authorization import AUTH_BYTES, AUTH_LENGTHS, AuthorizationCheck, Authorizer
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError
from tocsin.protocol.messages import Command, Response, ServiceSigning, UnknownTag
from tocsin.wire.batches import ITEM_OVERHEAD, MAX_ITEMS, BatchFiller, join_batch, pack, split_batch
from tocsin.wire.padding import pad, unpad
from tocsin.wire.transmissions import join_transmission, signed_tail, split_transmission
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import short

ROOM_FOR_ERRORS: Final = 128
"""Bytes of a block that an answer needs in addition to the ids: lengths, session id and a short error."""


class ReceivedCommand(NamedTuple):
    """A well-formed command with the credentials that its kind needs. They are not verified yet."""

    corr_id: bytes
    entity_id: bytes
    command: Command
    auth: bytes
    service_signature: bytes
    authorized: bytes
    """The bytes that a signature or authenticator covers, without a service fingerprint."""

    def __repr__(self) -> str:
        """Omit the wire bytes, which may hold passwords and private keys, and the entity id."""
        return f"ReceivedCommand({self.command!r})"


class RefusedCommand(NamedTuple):
    """A transmission that can only be answered with an error."""

    corr_id: bytes
    entity_id: bytes
    error: RouterError


class ReceivedResponse(NamedTuple):
    """An answer (or event, with an empty correlation id), or why it could not be read."""

    corr_id: bytes
    entity_id: bytes
    response: Response | RemoteProtocolError


@dataclass(frozen=True, slots=True)
class ServiceSession:
    """The client's side of a service session (smp.md 5.4)."""

    service_id: bytes
    fingerprint: bytes
    session_key: Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class RelayProof:
    """The facts that a proxy learns when it connects to a relay (smp.md 6.7)."""

    versions: VersionRange
    """Offered by the relay."""
    certificate_key: CertificateChainKey
    """The relay's certificates and its signed session key, for the proxy's clients to check."""
    forwarding_key: BoxKey = field(repr=False)
    """Seals the envelopes between proxy and relay."""


class ServiceRole(Enum):
    """The role of a service. A certificate keeps its role forever. The value is its letter in the hello."""

    MESSAGING = b"M"
    NOTIFIER = b"N"
    PROXY = b"P"


@dataclass(frozen=True, slots=True)
class ServicePeer:
    """The router's side of a service session."""

    service_id: bytes
    fingerprint: bytes
    role: ServiceRole
    session_key: Ed25519PublicKey


@dataclass(slots=True)
class BlockCoder:
    """Turns contents into blocks and back: padding, and encryption if it was agreed."""

    block_size: int
    outgoing: BlockChain | None = field(default=None, repr=False)
    incoming: BlockChain | None = field(default=None, repr=False)

    def to_block(self, content: bytes) -> bytes:
        """Raises `LocalProtocolError` if the content is too long."""
        if self.outgoing is None:
            return pad(content, self.block_size)
        return self.outgoing.seal(pad(content, self.block_size - TAG_BYTES))

    def from_block(self, block: bytes) -> bytes:
        """Open a block. Raises `BadBox` or `DecodeError`; the next block can still be read."""
        return unpad(block if self.incoming is None else self.incoming.unseal(block))


class Session:
    """The common part of both sides."""

    __slots__ = ("_coder", "_implied_id", "_layout", "dialect", "session_id", "version")

    def __init__(self, dialect: Dialect, version: int, session_id: bytes, coder: BlockCoder) -> None:
        self.dialect = dialect
        self.version = version
        self.session_id = session_id
        self._coder = coder
        self._layout = dialect.layout(version)
        self._implied_id = b"" if self._layout.session_id else short(session_id)

    @property
    def encrypted(self) -> bool:
        return self._coder.outgoing is not None

    def to_block(self, transmissions: Sequence[bytes]) -> bytes:
        """Make one block. `batches` and `BatchFiller` decide how many transmissions fit."""
        if self.version >= self.dialect.batches_from:
            return self._coder.to_block(join_batch(transmissions))
        if len(transmissions) != 1:
            raise LocalProtocolError(f"{self.dialect.name} v{self.version} has one transmission per block")
        return self._coder.to_block(transmissions[0])

    def content_of(self, block: bytes) -> bytes:
        """Return what a block carries, for another session to read: nothing, if the block is damaged."""
        try:
            return self._coder.from_block(block)
        except (BadBox, DecodeError):
            return b""

    def block_of(self, content: bytes) -> bytes:
        """Make a block of what another session wrote. Raises `LocalProtocolError` if it is too long."""
        return self._coder.to_block(content)

    def batches(self, transmissions: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Return runs of transmissions that share a block, packed like the reference does.

        Raises `LocalProtocolError` if one is too large for any block.
        """
        if self.version < self.dialect.batches_from:
            yield from ((transmission,) for transmission in transmissions)
            return
        if len(transmissions) == 1:
            self.require_fits(transmissions[0])
            yield transmissions
            return
        packing = pack(transmissions, self.dialect.budget)
        for index in packing.too_large:
            self.require_fits(transmissions[index])
        for batch in packing.batches:
            yield transmissions[batch]

    def filler(self) -> BatchFiller:
        """Collect the transmissions of one block, for senders that do not know how many will follow."""
        batched = self.version >= self.dialect.batches_from
        return BatchFiller(self.dialect.budget, MAX_ITEMS if batched else 1)

    def require_fits(self, transmission: bytes) -> None:
        """Raises `LocalProtocolError` if no block can carry the transmission."""
        if len(transmission) + ITEM_OVERHEAD > self.dialect.budget:
            raise LocalProtocolError(f"a transmission of {len(transmission)} bytes fits no block")

    def _transmissions(self, block: bytes) -> list[bytes]:
        content = self._coder.from_block(block)
        return split_batch(content) if self.version >= self.dialect.batches_from else [content]

    def _signed_tail(self, corr_id: bytes, entity_id: bytes, message: bytes) -> bytes:
        return signed_tail(self._layout, self.session_id, corr_id, entity_id, message)


class ClientSession(Session):
    """The client's side: writes commands, reads responses."""

    __slots__ = ("_authorizer", "relay", "service")

    def __init__(
        self,
        dialect: Dialect,
        version: int,
        session_id: bytes,
        coder: BlockCoder,
        router_key: X25519PublicKey | None,
        service: ServiceSession | None = None,
    ) -> None:
        super().__init__(dialect, version, session_id, coder)
        self._authorizer = Authorizer(router_key)
        self.service = service
        self.relay: RelayProof | None = None
        """The relay's keys, which a proxy passes on to its clients. Only on a proxy's own connections."""

    def request(
        self, corr_id: bytes, entity_id: bytes, command: Command, key: AuthPrivateKey | None
    ) -> bytes:
        """One transmission; `key` authorizes it, but in a service session the service signs NSUBS and SUBS.

        Raises `LocalProtocolError` if the key cannot be used in this session.
        """
        tail = self._signed_tail(corr_id, entity_id, command.encode(self.version))
        authorized = self._implied_id + tail
        auth = service_signature = b""
        if self.service is not None and command.service_signing is not ServiceSigning.NEVER:
            auth, service_signature = self._sign_as_service(self.service, command, key, corr_id, authorized)
        elif key is not None:
            auth = self._authorizer.authorize(key, corr_id, authorized)
        return join_transmission(self._layout, auth, service_signature, tail)

    def _sign_as_service(
        self,
        service: ServiceSession,
        command: Command,
        key: AuthPrivateKey | None,
        corr_id: bytes,
        authorized: bytes,
    ) -> tuple[bytes, bytes]:
        signature = service.session_key.sign(authorized)
        if command.service_signing is ServiceSigning.ALONE:
            return signature, b""
        if key is None:
            raise LocalProtocolError(f"{command.tag.decode()} of a service needs the queue's key too")
        return self._authorizer.authorize(key, corr_id, service.fingerprint + authorized), signature

    def read_block(self, block: bytes) -> list[ReceivedResponse]:
        """Read a block. Raises `RemoteProtocolError` if the whole block is unreadable."""
        try:
            transmissions = self._transmissions(block)
        except BadBox as error:
            raise DecodeError("a block that does not decrypt") from error
        return [self._read(transmission) for transmission in transmissions]

    def _read(self, transmission: bytes) -> ReceivedResponse:
        try:
            raw = split_transmission(transmission, self._layout)
        except DecodeError as error:
            return ReceivedResponse(b"", b"", error)
        response: Response | RemoteProtocolError
        try:
            response = self.dialect.responses.decode(raw.command, self.version)
            fault = response.entity.fault(entity=bool(raw.entity_id))
            if fault is not None:
                response = RemoteProtocolError(f"{response.tag.decode()}: {fault}")
            elif self._layout.session_id and raw.session_id != self.session_id:
                response = RemoteProtocolError("an answer of another session")
        except DecodeError as error:
            response = error
        return ReceivedResponse(raw.corr_id, raw.entity_id, response)


class RouterSession(Session):
    """The router's side: reads commands, writes responses."""

    __slots__ = ("_check", "_longest_ids", "forwarding_key", "service", "session_key")

    def __init__(
        self,
        dialect: Dialect,
        version: int,
        session_id: bytes,
        coder: BlockCoder,
        session_key: X25519PrivateKey | None,
        service: ServicePeer | None = None,
    ) -> None:
        super().__init__(dialect, version, session_id, coder)
        self.session_key = session_key
        self._check = AuthorizationCheck(session_key)
        self._longest_ids = dialect.budget - ROOM_FOR_ERRORS
        self.service = service
        self.forwarding_key: BoxKey | None = None
        """Opens the envelopes of a proxy; only on connections of proxies."""

    def read_block(self, block: bytes) -> list[ReceivedCommand | RefusedCommand]:
        """Read a block. Never raises: each transmission becomes a command or the error to answer with."""
        try:
            transmissions = self._transmissions(block)
        except (BadBox, DecodeError):
            return [RefusedCommand(b"", b"", ErrorCode.BLOCK)]
        return [self.read_transmission(transmission) for transmission in transmissions]

    def read_transmission(self, transmission: bytes) -> ReceivedCommand | RefusedCommand:
        try:
            raw = split_transmission(transmission, self._layout)
        except DecodeError:
            return RefusedCommand(b"", b"", ErrorCode.BLOCK)
        auth, service_signature, session_id, corr_id, entity_id, message, tail = raw
        if len(corr_id) + len(entity_id) > self._longest_ids:
            return RefusedCommand(b"", b"", ErrorCode.BLOCK)
        if session_id != self.session_id and self._layout.session_id:
            return RefusedCommand(corr_id, b"", ErrorCode.SESSION)
        if len(auth) not in AUTH_LENGTHS:
            return RefusedCommand(corr_id, b"", ErrorCode.BLOCK)
        try:
            command = self.dialect.commands.decode(message, self.version)
        except UnknownTag:
            return RefusedCommand(corr_id, entity_id, CommandFault.UNKNOWN)
        except DecodeError:
            return RefusedCommand(corr_id, entity_id, CommandFault.SYNTAX)
        fault = command.needs.fault(auth=bool(auth), entity=bool(entity_id))
        if fault is not None:
            return RefusedCommand(corr_id, entity_id, fault)
        return ReceivedCommand(corr_id, entity_id, command, auth, service_signature, self._implied_id + tail)

    def verifies(self, received: ReceivedCommand, key: AuthPublicKey) -> bool:
        """Return whether `key` authorized the command. With a service signature it covers the fingerprint too."""
        authorized = received.authorized
        if received.service_signature and self.service is not None:
            authorized = self.service.fingerprint + authorized
        return self._check.verifies(key, received.auth, received.corr_id, authorized)

    @staticmethod
    def may_have_made(key: AuthPublicKey, received: ReceivedCommand) -> bool:
        """Return whether the authorization has the size of this key's algorithm."""
        return len(received.auth) == AUTH_BYTES[type(key)]

    def pretend_to_verify(self, received: ReceivedCommand) -> None:
        """Do the work of a failed `verifies`, for an entity that does not exist."""
        self._check.pretend(received.auth, received.corr_id, received.authorized)

    def response(self, corr_id: bytes, entity_id: bytes, response: Response) -> bytes:
        """One transmission; events have an empty correlation id."""
        return b"\0" + self._signed_tail(corr_id, entity_id, response.encode(self.version))
