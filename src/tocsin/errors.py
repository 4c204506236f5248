"""Every error Tocsin raises, in one tree.

TocsinError
├── ProtocolError                  a message breaks the protocol (never raised itself)
│   ├── LocalProtocolError         … and we were about to send it
│   └── RemoteProtocolError        … and the peer sent it
│       ├── DecodeError            bytes that are not the value they should be
│       └── HandshakeRefused       a hello that cannot lead to a session
├── CryptoError                    a key, signature, box or certificate is invalid
│   ├── BadKey                     bytes that are not a key of the expected algorithm
│   ├── BadBox                     authenticated decryption failed
│   └── BadCertificateChain        a certificate chain that proves nothing
├── TransportError                 the connection failed, not a message on it
│   ├── TlsUnsupported             this Python's ssl module lacks something we need
│   ├── ConnectFailed              no connection could be made
│   ├── PeerIdentityMismatch       the peer is not the router of the address
│   ├── HandshakeTimeout           TLS or hello took too long
│   └── ConnectionLost             an open connection ended
├── StoreError                     records cannot be written or read
│   ├── StoreUnavailable           … at the moment
│   └── StoreFull                  … because there are as many as the operator allows
├── ConfigError                    a setting is wrong, unknown or missing
├── AgentError                     an agent cannot do what was asked now
└── ClientError                    a command did not get its answer
    ├── RouterRefused              the router answered ERR
    ├── UnexpectedResponse         an answer of another kind
    └── ResponseTimeout            no answer in time

Foreign exceptions (`ssl`, `OSError`, PyNaCl, `cryptography`) are translated once, where they enter.
"""

from __future__ import annotations

from enum import StrEnum


class TocsinError(Exception):
    """Root of all errors of this package."""


class ProtocolError(TocsinError):
    """A message breaks the protocol. Raise one of the two kinds below."""


class LocalProtocolError(ProtocolError):
    """We were about to send something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow."""


class DecodeError(RemoteProtocolError):
    """Bytes that are not the value they should be."""


class HandshakeFault(StrEnum):
    """Reasons to refuse a hello. The values are the words on the wire (smp.md 6.5)."""

    PARSE = "PARSE"
    IDENTITY = "IDENTITY"
    BAD_AUTH = "BAD_AUTH"
    BAD_SERVICE = "BAD_SERVICE"
    SESSION = "SESSION"
    VERSION = "VERSION"


class HandshakeRefused(RemoteProtocolError):
    """A hello that cannot lead to a session."""

    def __init__(self, fault: HandshakeFault, detail: str) -> None:
        super().__init__(f"{detail} ({fault})")
        self.fault = fault


class CryptoError(TocsinError):
    """A key, signature, box or certificate is invalid."""


class BadKey(CryptoError):
    """Bytes that are not a key of the expected algorithm."""


class BadBox(CryptoError):
    """Authenticated decryption failed: wrong key, wrong nonce or altered bytes."""


class BadCertificateChain(CryptoError):
    """A certificate chain that proves nothing."""


class TransportError(TocsinError):
    """The connection failed, not a message on it."""


class TlsUnsupported(TransportError):
    """This Python's ssl module lacks something the protocols need."""


class ConnectFailed(TransportError):
    """No connection could be made to any host of the address."""


class PeerIdentityMismatch(TransportError):
    """The peer is not the router that the address names."""


class HandshakeTimeout(TransportError):
    """The TLS or protocol handshake took longer than allowed."""


class ConnectionLost(TransportError):
    """An open connection ended."""


class StoreError(TocsinError):
    """Records cannot be written to a store, or cannot be read from it."""


class StoreUnavailable(StoreError):
    """The store cannot be used at the moment: the disk is full, the database is away. A later attempt may succeed."""


class StoreFull(StoreError):
    """A record cannot be added: the store has as many as the operator allows. `limit` is the name of the setting."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"the store has as many records as {limit} allows: remove some, or raise it")
        self.limit = limit


class ConfigError(TocsinError):
    """A setting is wrong, unknown or missing. The text names it."""


class AgentError(TocsinError):
    """An agent cannot do what was asked in its present state. The text says why."""


class ClientError(TocsinError):
    """A command did not get its answer."""


class UnexpectedResponse(ClientError):
    """The router sent a response that does not belong to the command: one with this tag, if it was readable."""

    def __init__(self, text: str, tag: bytes = b"") -> None:
        super().__init__(text)
        self.tag = tag


class ResponseTimeout(ClientError):
    """The router did not answer in time."""
