"""An NTF router proves to one SMP router who it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fuzz import fixed_parties as fixed
from tests.doubles.routers import make_credentials
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.ntf.dialect import NTF
from tocsin.transport.router_sessions import RouterIdentity

SMP_IDENTITY = bytes(range(32))
AUTH_KEY = Ed25519PrivateKey(b"\x44" * 32)
LOCATION = RouterLocation(("ntf.example.com",), "", fixed.ROUTER.fingerprint)


def signed(**changes: object) -> NtfRouterCredentials:
    made = NtfRouterCredentials.signed(
        LOCATION,
        fixed.ROUTER.chain,
        AUTH_KEY.public,
        7,
        smp_identity=SMP_IDENTITY,
        sign=fixed.LEAF_KEY.sign,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_its_certificates_prove_it() -> None:
    assert signed().proves_identity(SMP_IDENTITY, fixed.NOW)


@pytest.mark.parametrize("algorithm", CertificateAlgorithm)
def test_either_kind_of_leaf_key_may_sign(algorithm: CertificateAlgorithm) -> None:
    credentials = make_credentials(algorithm)
    identity = RouterIdentity.create(NTF, credentials)
    made = NtfRouterCredentials.signed(
        RouterLocation(("ntf.example.com",), "", credentials.fingerprint),
        credentials.chain,
        AUTH_KEY.public,
        7,
        smp_identity=SMP_IDENTITY,
        sign=identity.signing_key.sign,
    )
    assert made.proves_identity(SMP_IDENTITY, datetime.now(UTC))
    assert not replace(made, issued_at=8).proves_identity(SMP_IDENTITY, datetime.now(UTC))


@pytest.mark.parametrize(
    "changes",
    [
        {"location": replace(LOCATION, key_hash=bytes(32))},
        {"location": replace(LOCATION, hosts=("evil.example.com",))},
        {"auth_key": Ed25519PrivateKey(b"\x45" * 32).public},
        {"issued_at": 8},
        {"signature": bytes(64)},
        {"certificates": fixed.ROUTER.chain[:1]},
        {"certificates": (fixed.SERVICE.chain[0], *fixed.ROUTER.chain[1:])},
        {"certificates": (b"no certificate", *fixed.ROUTER.chain[1:])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_is_changed_proves_nothing(changes: dict[str, object]) -> None:
    assert not signed(**changes).proves_identity(SMP_IDENTITY, fixed.NOW)


def test_it_is_worth_nothing_at_another_smp_router() -> None:
    assert not signed().proves_identity(bytes(32), fixed.NOW)


def test_a_certificate_that_is_not_valid_yet_proves_nothing() -> None:
    assert not signed().proves_identity(SMP_IDENTITY, fixed.NOW - timedelta(days=365))
