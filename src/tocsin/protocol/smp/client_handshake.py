"""The client's side of an SMP handshake (smp.md 4.3, 4.4): hello in, hello out, session."""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin.crypto.block_chains import BlockChain, initial_chain_keys
from tocsin.crypto.boxes import box_key
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import (
    Ed448PrivateKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
    X25519PublicKey,
    private_key_from_der,
)
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import (
    DecodeError,
    HandshakeFault,
    HandshakeRefused,
    LocalProtocolError,
)
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import HANDSHAKE_FAULTS
from tocsin.protocol.hellos import agree_version, require_session, router_session_key
from tocsin.protocol.sessions import BlockCoder, ClientSession, RelayProof, ServiceRole, ServiceSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.hellos import (
    ClientHello,
    RouterHello,
    ServiceHello,
    ServiceRejected,
    decode_service_answer,
)
from tocsin.protocol.smp.versions import (
    ENCRYPTED_BLOCK_VERSION,
    PROXY_FLAG_VERSION,
    PROXY_TO_OLD_RELAY,
    SERVICE_CERTS_VERSION,
    SERVICE_HASH_VERSION,
    SUPPORTED,
)
from tocsin.wire.versions import VersionRange


@dataclass(frozen=True, slots=True)
class ServiceOffer:
    """The credentials with which a client becomes a service. TLS must present the same certificates."""

    role: ServiceRole
    credentials: Credentials
    session_key: Ed25519PrivateKey
    """Made for this connection."""
    from_version: int | None = None
    """Replaces the role's own version."""

    def fits(self, version: int) -> bool:
        """Messaging services are new in v19: before, routers know the role but not its subscriptions."""
        of_role = SERVICE_HASH_VERSION if self.role is ServiceRole.MESSAGING else SERVICE_CERTS_VERSION
        return version >= (of_role if self.from_version is None else self.from_version)

    def hello(self) -> ServiceHello:
        signer = private_key_from_der(self.credentials.private_key)
        if not isinstance(signer, Ed25519PrivateKey | Ed448PrivateKey):
            raise LocalProtocolError("service credentials need an Ed25519 or Ed448 key")
        signed = SignedKey.sign(self.session_key.public, signer)
        return ServiceHello(self.role, CertificateChainKey(self.credentials.chain, signed))


@dataclass(frozen=True, slots=True)
class AwaitingService:
    """The hello carried a service: the router's answer decides."""

    _session: ClientSession
    _offer: ServiceOffer

    def finish(self, service_answer: bytes) -> ClientSession:
        """Raises `HandshakeRefused`."""
        try:
            answer = decode_service_answer(service_answer)
        except DecodeError as error:
            raise HandshakeRefused(HandshakeFault.PARSE, "the service answer does not parse") from error
        if isinstance(answer, ServiceRejected):
            fault = next((ours for ours, wire in HANDSHAKE_FAULTS.items() if wire is answer.fault), None)
            raise HandshakeRefused(
                fault or HandshakeFault.PARSE, f"the router refused the service: {answer.fault.value}"
            )
        self._session.service = ServiceSession(
            answer.service_id, self._offer.credentials.fingerprint, self._offer.session_key
        )
        return self._session


@dataclass(frozen=True, slots=True)
class SmpClientHandshake:
    """The client's knowledge when the router's hello arrives."""

    key_hash: bytes
    """The router's identity, from its address."""
    tls_session_id: bytes
    leaf_key: bytes
    """DER public key of the certificate that TLS verified."""
    client_key: X25519PrivateKey | None
    """Made for this connection; without it blocks are not encrypted. Proxies need it for their envelopes."""
    versions: VersionRange = SUPPORTED
    proxy: bool = False
    service: ServiceOffer | None = field(default=None)
    dialect: Dialect = SMP

    def answer(self, router_hello: bytes) -> tuple[bytes, ClientSession | AwaitingService, RouterHello]:
        """Return the client hello to send, and what follows it. Raises `HandshakeRefused`."""
        try:
            hello = RouterHello.decode(router_hello)
        except DecodeError as error:
            raise HandshakeRefused(HandshakeFault.PARSE, "the router's hello does not parse") from error
        require_session(hello.session_id, self.tls_session_id)
        version = agree_version(self._own_versions(hello), hello.versions)
        router_key = None if hello.router_key is None else self._router_key(hello.router_key)
        offer = self.service if self.service is not None and self.service.fits(version) else None
        own_key = None if self.client_key is None or router_key is None else self.client_key
        sent = ClientHello(
            version,
            self.key_hash,
            None if own_key is None else own_key.public,
            self.proxy,
            None if offer is None else offer.hello(),
        )
        session = ClientSession(
            self.dialect, version, hello.session_id, self._coder(version, router_key), router_key
        )
        if self.proxy and own_key is not None and router_key is not None and hello.router_key is not None:
            forwarding_key = box_key(own_key.agree(router_key))
            session.relay = RelayProof(hello.versions, hello.router_key, forwarding_key)
        return sent.encode(), session if offer is None else AwaitingService(session, offer), hello

    def _own_versions(self, hello: RouterHello) -> VersionRange:
        """A proxy that cannot say so in its hello must stay below block encryption (smp.md 4.3)."""
        if not self.proxy or min(self.versions.highest, hello.versions.highest) >= PROXY_FLAG_VERSION:
            return self.versions
        old = self.versions.common(VersionRange(0, PROXY_TO_OLD_RELAY))
        if old is None:
            raise HandshakeRefused(
                HandshakeFault.VERSION, f"a relay of versions {hello.versions} does not know proxies"
            )
        return old

    def _router_key(self, offered: CertificateChainKey) -> X25519PublicKey:
        # The chain itself was validated when TLS presented it; the hello must name the same identity.
        credentials = Credentials(offered.certificates, b"")
        if not 2 <= len(offered.certificates) <= 4 or credentials.fingerprint != self.key_hash:
            raise HandshakeRefused(HandshakeFault.BAD_AUTH, "the hello names another router identity")
        return router_session_key(offered.signed_key, self.leaf_key)

    def _coder(self, version: int, router_key: X25519PublicKey | None) -> BlockCoder:
        if version < ENCRYPTED_BLOCK_VERSION or self.proxy or self.client_key is None or router_key is None:
            return BlockCoder(SMP.block_size)
        keys = initial_chain_keys(self.tls_session_id, self.client_key.agree(router_key))
        return BlockCoder(
            SMP.block_size,
            outgoing=BlockChain(keys.client_to_server),
            incoming=BlockChain(keys.server_to_client),
        )
