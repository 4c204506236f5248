"""Both ends of a connection after a real handshake, without a network between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final

from tocsin.crypto.certificates import (
    Authority,
    CertificateAlgorithm,
    Credentials,
    issue_leaf,
    make_authority,
    make_self_signed,
)
from tocsin.crypto.credentials import new_private_key
from tocsin.crypto.keys import (
    Ed448PrivateKey,
    Ed25519PrivateKey,
    SigningPrivateKey,
    X25519PrivateKey,
    private_key_from_der,
)
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.handshake import NtfClientHandshake, NtfRouterHandshake
from tocsin.protocol.sessions import ClientSession, RouterSession, ServiceRole
from tocsin.protocol.smp.client_handshake import AwaitingService, ServiceOffer, SmpClientHandshake
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.router_handshake import ServiceClaim, SmpRouterHandshake
from tocsin.wire.versions import VersionRange

NOW: Final = datetime(2026, 11, 15, 12, tzinfo=UTC)
TLS_SESSION: Final = bytes(range(32))
ROUTER_KEY: Final = X25519PrivateKey(b"\x21" * 32)
CLIENT_KEY: Final = X25519PrivateKey(b"\x22" * 32)
SERVICE_KEY: Final = Ed25519PrivateKey(b"\x23" * 32)
SERVICE_ID: Final = b"\x07" * 24

ED25519, ED448 = CertificateAlgorithm.ED25519, CertificateAlgorithm.ED448


@cache
def authority(algorithm: CertificateAlgorithm = ED25519, serial: int = 1) -> Authority:
    return make_authority(algorithm, now=NOW, serial=serial)


@cache
def router_credentials(algorithm: CertificateAlgorithm = ED25519) -> Credentials:
    return issue_leaf(authority(algorithm), "router.example.com", algorithm, now=NOW, serial=2)


@cache
def service_credentials(algorithm: CertificateAlgorithm = ED25519, *, single: bool = False) -> Credentials:
    if single:
        return make_self_signed("service", new_private_key(algorithm), now=NOW, serial=3)
    return issue_leaf(authority(algorithm, 4), "service.example.com", algorithm, now=NOW, serial=5)


def signing_key(credentials: Credentials) -> SigningPrivateKey:
    key = private_key_from_der(credentials.private_key)
    assert isinstance(key, Ed25519PrivateKey | Ed448PrivateKey)
    return key


def smp_router(
    *,
    offered: VersionRange = SMP.supported,
    credentials: Credentials | None = None,
    client_chain: tuple[bytes, ...] = (),
) -> SmpRouterHandshake:
    own = credentials or router_credentials()
    return SmpRouterHandshake(own, signing_key(own), offered, TLS_SESSION, client_chain, ROUTER_KEY)


def smp_client(
    *,
    versions: VersionRange = SMP.supported,
    credentials: Credentials | None = None,
    key: X25519PrivateKey | None = CLIENT_KEY,
    proxy: bool = False,
    service: ServiceOffer | None = None,
) -> SmpClientHandshake:
    router = credentials or router_credentials()
    return SmpClientHandshake(
        router.fingerprint, TLS_SESSION, signing_key(router).public.der, key, versions, proxy, service
    )


def ntf_router(
    *, offered: VersionRange = NTF.supported, credentials: Credentials | None = None
) -> NtfRouterHandshake:
    own = credentials or router_credentials()
    return NtfRouterHandshake(own, signing_key(own), offered, TLS_SESSION, ROUTER_KEY)


def ntf_client(
    *, versions: VersionRange = NTF.supported, credentials: Credentials | None = None
) -> NtfClientHandshake:
    router = credentials or router_credentials()
    return NtfClientHandshake(router.fingerprint, TLS_SESSION, signing_key(router).public.der, versions)


@dataclass(frozen=True, slots=True)
class Pair:
    client: ClientSession
    router: RouterSession


def connect_smp(
    version: int = 18,
    *,
    key: X25519PrivateKey | None = CLIENT_KEY,
    proxy: bool = False,
    algorithm: CertificateAlgorithm = ED25519,
) -> Pair:
    credentials = router_credentials(algorithm)
    router_side = smp_router(credentials=credentials)
    client_side = smp_client(versions=VersionRange(6, version), credentials=credentials, key=key, proxy=proxy)
    hello, client, _ = client_side.answer(router_side.hello())
    router = router_side.accept(hello, NOW)
    assert isinstance(client, ClientSession)
    assert isinstance(router, RouterSession)
    return Pair(client, router)


def service_offer(role: ServiceRole, credentials: Credentials | None = None) -> ServiceOffer:
    """Also of role M before v19, where clients do not show it but routers take it."""
    return ServiceOffer(role, credentials or service_credentials(), SERVICE_KEY, from_version=16)


def connect_service(
    role: ServiceRole = ServiceRole.NOTIFIER, version: int = 18, credentials: Credentials | None = None
) -> Pair:
    offer = service_offer(role, credentials)
    router_side = smp_router(client_chain=offer.credentials.chain)
    client_side = smp_client(versions=VersionRange(6, version), service=offer)
    hello, awaiting, _ = client_side.answer(router_side.hello())
    assert isinstance(awaiting, AwaitingService)
    claim = router_side.accept(hello, NOW)
    assert isinstance(claim, ServiceClaim)
    answer, router = claim.accept(SERVICE_ID)
    return Pair(awaiting.finish(answer), router)


def connect_ntf(version: int = 3) -> Pair:
    router_side, client_side = ntf_router(), ntf_client(versions=VersionRange(1, version))
    hello, client = client_side.answer(router_side.hello())
    return Pair(client, router_side.accept(hello))


def connect(dialect: Dialect, version: int) -> Pair:
    return connect_smp(version) if dialect is SMP else connect_ntf(version)
