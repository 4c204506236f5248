"""The router's side of an SMP handshake (smp.md 4.3, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tocsin.crypto.block_chains import BlockChain, initial_chain_keys
from tocsin.crypto.boxes import box_key
from tocsin.crypto.certificate_chains import validate_client_chain
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import (
    Ed25519PublicKey,
    SigningPrivateKey,
    X25519PrivateKey,
    public_key_from_der,
)
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import (
    BadCertificateChain,
    BadKey,
    DecodeError,
    HandshakeFault,
    HandshakeRefused,
)
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import HANDSHAKE_FAULTS
from tocsin.protocol.hellos import require_identity, require_offered
from tocsin.protocol.sessions import BlockCoder, RouterSession, ServicePeer, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.hellos import (
    ClientHello,
    RouterHello,
    ServiceAccepted,
    ServiceHello,
    ServiceRejected,
)
from tocsin.protocol.smp.versions import AUTH_COMMANDS_VERSION, ENCRYPTED_BLOCK_VERSION
from tocsin.wire.versions import VersionRange


class ServiceRefused(HandshakeRefused):
    """The service part of a hello was refused: send `reply`, then close."""

    def __init__(self, fault: HandshakeFault, detail: str) -> None:
        super().__init__(fault, detail)
        self.reply = ServiceRejected(HANDSHAKE_FAULTS[fault]).encode()


@dataclass(frozen=True, slots=True)
class ServiceClaim:
    """A proven service certificate. The store knows its service id, or refuses it."""

    role: ServiceRole
    fingerprint: bytes
    _session_key: Ed25519PublicKey
    _session: RouterSession

    def accept(self, service_id: bytes) -> tuple[bytes, RouterSession]:
        """The answer to send, and the session."""
        self._session.service = ServicePeer(service_id, self.fingerprint, self.role, self._session_key)
        return ServiceAccepted(service_id).encode(), self._session

    def refuse(self) -> ServiceRefused:
        """Refuse, for a certificate that is known with another role, and for a failing store."""
        return ServiceRefused(HandshakeFault.BAD_SERVICE, "the certificate is known in another role")


@dataclass(frozen=True, slots=True)
class SmpRouterHandshake:
    """The router's knowledge when a TLS connection is up."""

    credentials: Credentials
    signing_key: SigningPrivateKey
    """The private key of the leaf certificate."""
    offered: VersionRange
    tls_session_id: bytes
    client_chain: tuple[bytes, ...]
    """The certificates that the client presented in TLS, leaf first; usually none."""
    session_key: X25519PrivateKey
    """Made for this connection."""
    dialect: Dialect = SMP

    def hello(self) -> bytes:
        """Sent without waiting for the client."""
        router_key = None
        if self.offered.highest >= AUTH_COMMANDS_VERSION:
            signed = SignedKey.sign(self.session_key.public, self.signing_key)
            router_key = CertificateChainKey(self.credentials.chain, signed)
        return RouterHello(self.offered, self.tls_session_id, router_key).encode()

    def accept(self, client_hello: bytes, now: datetime) -> RouterSession | ServiceClaim:
        """Raises `ServiceRefused` (reply, then close) or `HandshakeRefused` (close without a reply)."""
        try:
            hello = ClientHello.decode(client_hello)
        except DecodeError as error:
            raise HandshakeRefused(HandshakeFault.PARSE, "the client's hello does not parse") from error
        require_identity(hello.key_hash, self.credentials.fingerprint)
        require_offered(hello.version, self.offered)
        own_key = self.session_key if self.offered.highest >= AUTH_COMMANDS_VERSION else None
        session = RouterSession(self.dialect, hello.version, self.tls_session_id, self._coder(hello), own_key)
        if own_key is not None and hello.client_key is not None:
            session.forwarding_key = box_key(own_key.agree(hello.client_key))
        return session if hello.service is None else self._claim(hello.service, session, now)

    def _coder(self, hello: ClientHello) -> BlockCoder:
        if hello.version < ENCRYPTED_BLOCK_VERSION or hello.client_key is None or hello.proxy:
            return BlockCoder(SMP.block_size)
        keys = initial_chain_keys(self.tls_session_id, self.session_key.agree(hello.client_key))
        return BlockCoder(
            SMP.block_size,
            outgoing=BlockChain(keys.server_to_client),
            incoming=BlockChain(keys.client_to_server),
        )

    def _claim(self, service: ServiceHello, session: RouterSession, now: datetime) -> ServiceClaim:
        signed = service.service_key.signed_key
        if not self.client_chain or service.service_key.certificates != self.client_chain:
            raise ServiceRefused(HandshakeFault.BAD_AUTH, "the service's certificates are not those of TLS")
        try:
            fingerprint, leaf_key = validate_client_chain(self.client_chain, now)
            genuine = signed.signed_by(public_key_from_der(leaf_key))
        except (BadCertificateChain, BadKey) as error:
            raise ServiceRefused(HandshakeFault.BAD_AUTH, str(error)) from error
        if not genuine or not isinstance(signed.key, Ed25519PublicKey):
            raise ServiceRefused(HandshakeFault.BAD_AUTH, "the service's session key is not properly signed")
        return ServiceClaim(service.role, fingerprint, signed.key, session)
