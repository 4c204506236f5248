"""The three messages of an SMP handshake (smp.md 4.3). Bytes after the known fields are ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeAlias

from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.errors import BadKey, DecodeError
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import TransportFault, decode_transport_fault, encode_transport_fault
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import decode_letter
from tocsin.protocol.smp.versions import AUTH_COMMANDS_VERSION, PROXY_FLAG_VERSION, SERVICE_CERTS_VERSION
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class RouterHello:
    """u16 min, u16 max, bs(sessionId), and from v7 on the certificates and the signed session key."""

    versions: VersionRange
    session_id: bytes
    router_key: CertificateChainKey | None

    def encode(self) -> bytes:
        out = WireWriter()
        self.versions.encode(out)
        out.short_bytes(self.session_id)
        if self.router_key is not None:
            self.router_key.encode(out)
        return out.done()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        body = WireReader(content)
        versions, session_id = VersionRange.decode(body), body.short_bytes()
        has_key = versions.highest >= AUTH_COMMANDS_VERSION
        return cls(versions, session_id, CertificateChainKey.decode(body) if has_key else None)


@dataclass(frozen=True, slots=True)
class ServiceHello:
    """role certChainKey; the signed key is the Ed25519 session key of the service."""

    role: ServiceRole
    service_key: CertificateChainKey

    def encode(self, out: WireWriter) -> None:
        out.raw(self.role.value)
        self.service_key.encode(out)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        return cls(decode_letter(ServiceRole, body), CertificateChainKey.decode(body))


@dataclass(frozen=True, slots=True)
class ClientHello:
    """u16 version, bs(keyHash), [v7+ key, no maybe tag], [v14+ bool proxy], [v16+ maybe(service)]"""

    version: int
    key_hash: bytes
    client_key: X25519PublicKey | None
    proxy: bool = False
    service: ServiceHello | None = None

    def encode(self) -> bytes:
        out = WireWriter().u16(self.version).short_bytes(self.key_hash)
        if self.version >= AUTH_COMMANDS_VERSION and self.client_key is not None:
            out.short_bytes(self.client_key.der)
        if self.version >= PROXY_FLAG_VERSION:
            out.boolean(self.proxy)
        if self.version >= SERVICE_CERTS_VERSION:
            out.maybe(self.service, lambda service: service.encode(out))
        return out.done()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        body = WireReader(content)
        version, key_hash = body.u16(), body.short_bytes()
        client_key = _optional_key(body) if version >= AUTH_COMMANDS_VERSION else None
        proxy = body.boolean() if version >= PROXY_FLAG_VERSION else False
        service = None
        if version >= SERVICE_CERTS_VERSION:
            service = body.maybe(lambda: ServiceHello.decode(body))
        return cls(version, key_hash, client_key, proxy, service)


def _optional_key(body: WireReader) -> X25519PublicKey | None:
    """Nothing marks an absent key: it is absent if what comes next is not a key."""
    start = body.position
    try:
        return dh_key_from_der(body.short_bytes())
    except (DecodeError, BadKey):
        body.rewind(start)
        return None


@dataclass(frozen=True, slots=True)
class ServiceAccepted:
    """ "R" bs(serviceId)"""

    service_id: bytes

    def encode(self) -> bytes:
        return WireWriter(b"R").short_bytes(self.service_id).done()


@dataclass(frozen=True, slots=True)
class ServiceRejected:
    """ "E" transportError; the router closes after it."""

    fault: TransportFault

    def encode(self) -> bytes:
        return b"E" + encode_transport_fault(self.fault)


ServiceAnswer: TypeAlias = ServiceAccepted | ServiceRejected


def decode_service_answer(content: bytes) -> ServiceAnswer:
    body = WireReader(content)
    letter = body.take(1)
    if letter == b"R":
        return ServiceAccepted(body.short_id())
    if letter == b"E":
        return ServiceRejected(decode_transport_fault(body))
    raise DecodeError(f"R or E expected, {letter!r} found")
