"""A router, a client and a service whose keys never change, so that an input means the same in every run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from tocsin.crypto.boxes import box_key
from tocsin.crypto.certificates import issue_leaf, make_authority, make_self_signed
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.direct.dialects import DIRECT_NTF, DIRECT_SMP
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.handshake import NtfClientHandshake, NtfRouterHandshake
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.client_handshake import ServiceOffer, SmpClientHandshake
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.router_handshake import SmpRouterHandshake
from tocsin.wire.versions import VersionRange

NOW: Final = datetime(2026, 11, 15, 12, tzinfo=UTC)
SESSION_ID: Final = bytes(range(32))
NONCE: Final = bytes(range(24))

LEAF_KEY: Final = Ed25519PrivateKey(b"\x21" * 32)
AUTHORITY_KEY: Final = Ed25519PrivateKey(b"\x22" * 32)
OPERATOR_KEY: Final = Ed25519PrivateKey(b"\x23" * 32)
SERVICE_KEY: Final = Ed25519PrivateKey(b"\x24" * 32)
SERVICE_SESSION_KEY: Final = Ed25519PrivateKey(b"\x25" * 32)
ENTITY_KEY: Final = Ed25519PrivateKey(b"\x26" * 32)
ENTITY_KEY_448: Final = Ed448PrivateKey(b"\x27" * 57)
ENTITY_DH_KEY: Final = X25519PrivateKey(b"\x28" * 32)
ROUTER_SESSION_KEY: Final = X25519PrivateKey(b"\x29" * 32)
CLIENT_SESSION_KEY: Final = X25519PrivateKey(b"\x2a" * 32)
BOX_KEY: Final = box_key(b"\x2b" * 32)

_ED25519: Final = CertificateAlgorithm.ED25519
OPERATOR: Final = make_authority(
    _ED25519, now=NOW, serial=1, common_name="operator", private_key=OPERATOR_KEY.der
)
AUTHORITY: Final = make_authority(_ED25519, parent=OPERATOR, now=NOW, serial=2, private_key=AUTHORITY_KEY.der)
ROUTER: Final = issue_leaf(AUTHORITY, "router.example", _ED25519, now=NOW, serial=3, private_key=LEAF_KEY.der)
SERVICE: Final = make_self_signed("service", SERVICE_KEY.der, now=NOW, serial=4)
OFFER: Final = ServiceOffer(ServiceRole.NOTIFIER, SERVICE, SERVICE_SESSION_KEY)

VERSIONS: Final[tuple[tuple[Dialect, int], ...]] = (
    *(
        (dialect, version)
        for dialect in (SMP, NTF)
        for version in range(dialect.supported.lowest, dialect.supported.highest + 1)
    ),
    (DIRECT_SMP, SMP.supported.highest),
    (DIRECT_NTF, NTF.supported.highest),
)
"""Every version of both protocols, and the newest with direct notifications; targets choose one by the first byte."""


def _smp_client(
    *, key: bool = True, proxy: bool = False, service: bool = False, versions: VersionRange = SMP.supported
) -> SmpClientHandshake:
    return SmpClientHandshake(
        ROUTER.fingerprint,
        SESSION_ID,
        LEAF_KEY.public.der,
        CLIENT_SESSION_KEY if key else None,
        versions,
        proxy,
        OFFER if service else None,
    )


def _smp_router(offered: VersionRange, *, service: bool = False) -> SmpRouterHandshake:
    chain = SERVICE.chain if service else ()
    return SmpRouterHandshake(ROUTER, LEAF_KEY, offered, SESSION_ID, chain, ROUTER_SESSION_KEY)


SMP_CLIENTS: Final = (
    _smp_client(),
    _smp_client(key=False),
    _smp_client(proxy=True),
    _smp_client(service=True),
    _smp_client(versions=VersionRange(6, 10)),
)
SMP_ROUTERS: Final = (
    _smp_router(SMP.supported),
    _smp_router(SMP.supported, service=True),
    _smp_router(SMP.without_alpn),
    _smp_router(VersionRange(7, 13)),
)
NTF_CLIENT: Final = NtfClientHandshake(ROUTER.fingerprint, SESSION_ID, LEAF_KEY.public.der)
NTF_ROUTERS: Final = tuple(
    NtfRouterHandshake(ROUTER, LEAF_KEY, offered, SESSION_ID, ROUTER_SESSION_KEY)
    for offered in (NTF.supported, NTF.without_alpn)
)
