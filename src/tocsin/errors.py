"""Every error Tocsin raises, in one tree.

TocsinError
├── ProtocolError                  a message breaks the protocol (never raised itself)
│   ├── LocalProtocolError         … and we were about to send it
│   └── RemoteProtocolError        … and the peer sent it
│       ├── DecodeError            bytes that are not the value they should be
│       └── HandshakeRefused       a hello that cannot lead to a session
├── CryptoError                    a key, signature, box or certificate is not good
│   ├── BadKey                     bytes that are no key of the algorithm expected
│   ├── BadBox                     authenticated decryption failed
│   └── BadCertificateChain        a certificate chain that proves nothing
├── TransportError                 the connection, not what travels on it
│   ├── TlsUnsupported             this Python's ssl module lacks something we need
│   ├── ConnectFailed              no connection could be made
│   ├── PeerIdentityMismatch       the peer is not who the address says
│   ├── HandshakeTimeout           TLS or hello took too long
│   └── ConnectionLost             an open connection ended
├── StoreError                     what must be kept cannot be kept
├── ConfigError                    a setting is wrong, unknown or missing
├── AgentError                     an agent is asked for what it cannot do now
└── ClientError                    a command did not get the answer it wants
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
    """Why a hello was refused; the values are the wire's words for it (smp.md 6.5)."""

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
    """A key, signature, box or certificate is not good."""


class BadKey(CryptoError):
    """Bytes that are no key of the algorithm expected here."""


class BadBox(CryptoError):
    """Authenticated decryption failed: wrong key, wrong nonce or altered bytes."""


class BadCertificateChain(CryptoError):
    """A certificate chain that proves nothing."""


class TransportError(TocsinError):
    """The connection failed, not what travels on it."""


class TlsUnsupported(TransportError):
    """This Python's ssl module lacks something the protocols need."""


class ConnectFailed(TransportError):
    """No connection could be made to any host of the address."""


class PeerIdentityMismatch(TransportError):
    """The peer is not the one the address names."""


class HandshakeTimeout(TransportError):
    """The TLS or protocol handshake took longer than allowed."""


class ConnectionLost(TransportError):
    """An open connection ended."""


class StoreError(TocsinError):
    """What must be kept cannot be written, or what was kept cannot be read."""


class ConfigError(TocsinError):
    """A setting is wrong, unknown or missing; the text names it."""


class AgentError(TocsinError):
    """An agent is asked for what it cannot do in its state; the text says why."""


class ClientError(TocsinError):
    """A command did not get the answer it wants."""


class UnexpectedResponse(ClientError):
    """The router answered with something this command cannot get: a response with this tag, if it could be read."""

    def __init__(self, text: str, tag: bytes = b"") -> None:
        super().__init__(text)
        self.tag = tag


class ResponseTimeout(ClientError):
    """The router did not answer in time."""
