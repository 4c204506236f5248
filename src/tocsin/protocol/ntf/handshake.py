"""Both sides of an NTF handshake (ntf.md 1.4): no certificates in the hello, no client key, no services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import SigningPrivateKey, X25519PrivateKey
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import DecodeError, HandshakeFault, HandshakeRefused
from tocsin.protocol.certificate_keys import decode_signed_key
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.hellos import (
    agree_version,
    require_identity,
    require_offered,
    require_session,
    router_session_key,
)
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.versions import BATCHES_VERSION, SUPPORTED
from tocsin.protocol.sessions import BlockCoder, ClientSession, RouterSession
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class NtfRouterHello:
    """u16 min, u16 max, bs(sessionId), and from v2 on large(signed session key)"""

    versions: VersionRange
    session_id: bytes
    router_key: SignedKey | None

    def encode(self) -> bytes:
        out = WireWriter()
        self.versions.encode(out)
        out.short_bytes(self.session_id)
        if self.router_key is not None:
            out.large_bytes(self.router_key.der)
        return out.done()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        body = WireReader(content)
        versions, session_id = VersionRange.decode(body), body.short_bytes()
        has_key = versions.highest >= BATCHES_VERSION
        return cls(versions, session_id, decode_signed_key(body) if has_key else None)


@dataclass(frozen=True, slots=True)
class NtfClientHello:
    """u16 version, bs(keyHash)"""

    version: int
    key_hash: bytes

    def encode(self) -> bytes:
        return WireWriter().u16(self.version).short_bytes(self.key_hash).done()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        body = WireReader(content)
        return cls(body.u16(), body.short_bytes())


@dataclass(frozen=True, slots=True)
class NtfClientHandshake:
    """The client's knowledge when the router's hello arrives."""

    key_hash: bytes
    tls_session_id: bytes
    leaf_key: bytes
    """DER public key of the certificate that TLS verified."""
    versions: VersionRange = SUPPORTED
    dialect: Dialect = NTF

    def answer(self, router_hello: bytes) -> tuple[bytes, ClientSession]:
        """Return the client hello to send, and the session. Raises `HandshakeRefused`."""
        try:
            hello = NtfRouterHello.decode(router_hello)
        except DecodeError as error:
            raise HandshakeRefused(HandshakeFault.PARSE, "the router's hello does not parse") from error
        require_session(hello.session_id, self.tls_session_id)
        version = agree_version(self.versions, hello.versions)
        key = None if hello.router_key is None else router_session_key(hello.router_key, self.leaf_key)
        session = ClientSession(self.dialect, version, hello.session_id, BlockCoder(NTF.block_size), key)
        return NtfClientHello(version, self.key_hash).encode(), session


@dataclass(frozen=True, slots=True)
class NtfRouterHandshake:
    """The router's knowledge when a TLS connection is up."""

    credentials: Credentials
    signing_key: SigningPrivateKey
    offered: VersionRange
    tls_session_id: bytes
    session_key: X25519PrivateKey
    """Made for this connection."""
    dialect: Dialect = NTF

    def hello(self) -> bytes:
        signed = None
        if self.offered.highest >= BATCHES_VERSION:
            signed = SignedKey.sign(self.session_key.public, self.signing_key)
        return NtfRouterHello(self.offered, self.tls_session_id, signed).encode()

    def accept(self, client_hello: bytes) -> RouterSession:
        """Raises `HandshakeRefused`: close without a reply."""
        try:
            hello = NtfClientHello.decode(client_hello)
        except DecodeError as error:
            raise HandshakeRefused(HandshakeFault.PARSE, "the client's hello does not parse") from error
        require_identity(hello.key_hash, self.credentials.fingerprint)
        require_offered(hello.version, self.offered)
        own_key = self.session_key if self.offered.highest >= BATCHES_VERSION else None
        coder = BlockCoder(NTF.block_size)
        return RouterSession(self.dialect, hello.version, self.tls_session_id, coder, own_key)
