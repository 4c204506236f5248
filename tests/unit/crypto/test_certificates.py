"""Certificates as the reference makes them, and chains that must not be believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.crypto.certificate_chains import (
    FingerprintMismatch,
    certificate_public_key,
    validate_client_chain,
    validate_server_chain,
)
from tocsin.crypto.certificates import (
    Authority,
    CertificateAlgorithm,
    Credentials,
    issue_leaf,
    make_authority,
    make_self_signed,
    new_serial,
)
from tocsin.crypto.credentials import load_private_key, new_private_key
from tocsin.errors import BadCertificateChain, BadKey, CryptoError

NOW = datetime(2026, 11, 15, 12, 30, 15, 999_999, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
ED25519, ED448 = CertificateAlgorithm.ED25519, CertificateAlgorithm.ED448

CHAIN_LENGTHS = (2, 3, 4)


def chain_of(length: int, algorithm: CertificateAlgorithm = ED25519) -> Credentials:
    authority = make_authority(algorithm, now=NOW, serial=new_serial(), common_name=f"anchor of {length}")
    for level in range(length - 2):
        authority = make_authority(
            algorithm, parent=authority, now=NOW, serial=new_serial(), common_name=f"level {level}"
        )
    return issue_leaf(authority, "localhost", algorithm, now=NOW, serial=new_serial())


def names(name: x509.Name) -> list[tuple[x509.ObjectIdentifier, str | bytes]]:
    return [(attribute.oid, attribute.value) for attribute in name]


def custom_certificate(
    key: Ed25519PrivateKey,
    issuer_key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey,
    *,
    subject: str,
    issuer: str,
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
) -> bytes:
    builder = x509.CertificateBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]),
        key.public_key(),
        1,
        NOW.replace(microsecond=0),
        NOW.replace(microsecond=0) + timedelta(days=10),
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    algorithm = hashes.SHA256() if isinstance(issuer_key, ec.EllipticCurvePrivateKey) else None
    return builder.sign(issuer_key, algorithm).public_bytes(serialization.Encoding.DER)


CA = (x509.BasicConstraints(ca=True, path_length=None), True)


def server_chain_with(
    *, leaf: Sequence[tuple[x509.ExtensionType, bool]] = (), anchor: Sequence[tuple[x509.ExtensionType, bool]]
) -> tuple[bytes, bytes]:
    anchor_key, leaf_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    return (
        custom_certificate(leaf_key, anchor_key, subject="leaf", issuer="anchor", extensions=leaf),
        custom_certificate(anchor_key, anchor_key, subject="anchor", issuer="anchor", extensions=anchor),
    )


def accept_server(chain: Sequence[bytes]) -> bytes:
    return validate_server_chain(chain, hashlib.sha256(chain[1]).digest(), LATER)


# Making


@pytest.mark.parametrize("algorithm", list(CertificateAlgorithm))
def test_authority_has_the_subject_and_extensions_of_the_reference(algorithm: CertificateAlgorithm) -> None:
    authority = make_authority(algorithm, now=NOW, serial=5)
    certificate = x509.load_der_x509_certificate(authority.certificate)
    assert names(certificate.subject) == [
        (NameOID.COMMON_NAME, "SMP server CA"),
        (NameOID.ORGANIZATION_NAME, "SimpleX"),
    ]
    assert certificate.issuer == certificate.subject
    assert certificate.serial_number == 5
    assert [(type(e.value), e.critical) for e in certificate.extensions] == [
        (x509.SubjectKeyIdentifier, False),
        (x509.AuthorityKeyIdentifier, False),
        (x509.BasicConstraints, True),
    ]


def test_leaf_has_the_subject_and_extensions_of_the_reference() -> None:
    leaf = x509.load_der_x509_certificate(chain_of(2).chain[0])
    assert names(leaf.subject) == [(NameOID.COMMON_NAME, "localhost")]
    assert [(type(e.value), e.critical) for e in leaf.extensions] == [
        (x509.BasicConstraints, False),
        (x509.KeyUsage, False),
        (x509.ExtendedKeyUsage, False),
        (x509.SubjectKeyIdentifier, False),
        (x509.AuthorityKeyIdentifier, False),
    ]
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.content_commitment, usage.key_agreement) == (True, True, True)
    assert not usage.key_cert_sign


def test_certificates_last_as_long_as_the_reference_says() -> None:
    leaf = x509.load_der_x509_certificate(chain_of(2).chain[0])
    assert leaf.not_valid_before_utc == NOW.replace(microsecond=0)
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == timedelta(days=999_999)


def test_validity_is_cut_at_the_last_year_x509_can_write() -> None:
    authority = make_authority(ED25519, now=datetime(9000, 1, 1, tzinfo=UTC), serial=1)
    certificate = x509.load_der_x509_certificate(authority.certificate)
    assert certificate.not_valid_after_utc == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_same_key_serial_and_time_make_the_same_certificate() -> None:
    key = new_private_key(ED25519)
    made = {make_authority(ED25519, now=NOW, serial=7, private_key=key).certificate for _ in range(2)}
    assert len(made) == 1


def test_private_keys_are_not_shown() -> None:
    authority = make_authority(ED25519, now=NOW, serial=1)
    credentials = issue_leaf(authority, "localhost", ED25519, now=NOW, serial=2)
    assert repr(authority.private_key)[2:-1] not in repr(authority)
    assert "private_key" not in repr(authority) + repr(credentials)


def test_host_that_cannot_be_a_name_is_refused() -> None:
    authority = make_authority(ED25519, now=NOW, serial=1)
    with pytest.raises(CryptoError, match="cannot be the name"):
        issue_leaf(authority, "x" * 65, ED25519, now=NOW, serial=2)


@pytest.mark.parametrize("algorithm", list(CertificateAlgorithm))
def test_credentials_survive_pem(algorithm: CertificateAlgorithm) -> None:
    credentials = chain_of(3, algorithm)
    assert Credentials.from_pem(credentials.chain_pem, credentials.private_key_pem) == credentials


def test_authority_survives_pem_with_its_issuers() -> None:
    anchor = make_authority(ED448, now=NOW, serial=1)
    authority = make_authority(ED25519, parent=anchor, now=NOW, serial=2)
    assert Authority.from_pem(authority.certificates_pem, authority.private_key_pem) == authority


def test_pem_with_the_key_of_another_certificate_is_refused() -> None:
    with pytest.raises(BadKey, match="does not belong"):
        Credentials.from_pem(chain_of(2).chain_pem, chain_of(2).private_key_pem)


@pytest.mark.parametrize(
    ("chain", "key"), [(b"", b""), (b"-----BEGIN CERTIFICATE-----\n", b""), (None, b"no key")]
)
def test_text_that_is_not_pem_is_refused(chain: bytes | None, key: bytes) -> None:
    with pytest.raises((BadCertificateChain, BadKey)):
        Credentials.from_pem(chain if chain is not None else chain_of(2).chain_pem, key)


def test_key_of_another_algorithm_is_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(BadKey):
        load_private_key(other)


# Chains of routers


@pytest.mark.parametrize("algorithm", list(CertificateAlgorithm))
@pytest.mark.parametrize("length", CHAIN_LENGTHS)
def test_router_chain_of_two_to_four_gives_the_leaf_key(length: int, algorithm: CertificateAlgorithm) -> None:
    credentials = chain_of(length, algorithm)
    assert len(credentials.chain) == length
    key = validate_server_chain(credentials.chain, credentials.fingerprint, LATER)
    assert key == certificate_public_key(credentials.chain[0])
    assert len(key) == (44 if algorithm is ED25519 else 69)


def test_chain_may_mix_algorithms() -> None:
    anchor = make_authority(ED448, now=NOW, serial=1)
    accept_server(issue_leaf(anchor, "localhost", ED25519, now=NOW, serial=2).chain)


def test_rotated_leaf_keeps_the_identity() -> None:
    authority = make_authority(ED25519, now=NOW, serial=1)
    old = issue_leaf(authority, "localhost", ED25519, now=NOW, serial=2)
    new = issue_leaf(authority, "localhost", ED448, now=LATER, serial=3)
    assert old.fingerprint == new.fingerprint == authority.fingerprint
    assert validate_server_chain(new.chain, old.fingerprint, LATER) != validate_server_chain(
        old.chain, old.fingerprint, LATER
    )


def test_another_routers_chain_is_told_apart_from_a_broken_one() -> None:
    ours, other = chain_of(2), chain_of(2)
    with pytest.raises(FingerprintMismatch) as refused:
        validate_server_chain(other.chain, ours.fingerprint, LATER)
    assert (refused.value.expected, refused.value.actual) == (ours.fingerprint, other.fingerprint)


def test_leaf_not_issued_by_the_pinned_authority_is_refused() -> None:
    """The real identity certificate behind an attacker's leaf with the same names."""
    ours, attacker = chain_of(2), chain_of(2)
    with pytest.raises(BadCertificateChain, match="not issued"):
        validate_server_chain((attacker.chain[0], ours.chain[1]), ours.fingerprint, LATER)


@pytest.mark.parametrize(
    ("length", "broken"), [(length, link) for length in CHAIN_LENGTHS for link in range(length - 1)]
)
def test_one_broken_link_anywhere_is_refused(length: int, broken: int) -> None:
    """Certificates up to `broken` from one hierarchy, the rest from another with the same names."""
    one, other = chain_of(length), chain_of(length)
    chain = one.chain[: broken + 1] + other.chain[broken + 1 :]
    with pytest.raises(BadCertificateChain, match="not issued"):
        accept_server(chain)
    with pytest.raises(BadCertificateChain, match="not issued"):
        validate_client_chain(chain, LATER)


def test_identity_certificate_beside_the_path_is_refused() -> None:
    """The hole in the reference: leaf and anchor fit, the pinned certificate between them is a stranger's."""
    operator = make_authority(ED25519, now=NOW, serial=1, common_name="operator")
    attacker_leaf = issue_leaf(operator, "localhost", ED25519, now=NOW, serial=2)
    victim = make_authority(ED25519, parent=operator, now=NOW, serial=3)
    chain = (attacker_leaf.chain[0], victim.certificate, operator.certificate)
    with pytest.raises(BadCertificateChain, match="not issued"):
        validate_server_chain(chain, victim.fingerprint, LATER)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_router_chain_of_another_length_is_refused(count: int) -> None:
    credentials = chain_of(4)
    chain = (*credentials.chain, credentials.chain[-1])[:count]
    with pytest.raises(BadCertificateChain, match="certificates"):
        validate_server_chain(chain, credentials.fingerprint, LATER)


@pytest.mark.parametrize("when", [NOW - timedelta(days=1), NOW + timedelta(days=40)])
def test_leaf_outside_its_dates_is_refused(when: datetime) -> None:
    authority = make_authority(ED25519, now=NOW - timedelta(days=9), serial=1)
    leaf = issue_leaf(authority, "localhost", ED25519, now=NOW, serial=2, lifetime=timedelta(days=30))
    with pytest.raises(BadCertificateChain, match="valid from"):
        validate_server_chain(leaf.chain, leaf.fingerprint, when)
    with pytest.raises(BadCertificateChain, match="valid from"):
        validate_client_chain(leaf.chain, when)


def test_dates_of_the_anchor_do_not_matter() -> None:
    anchor = make_authority(ED25519, now=NOW, serial=1, lifetime=timedelta(days=1))
    leaf = issue_leaf(anchor, "localhost", ED25519, now=NOW, serial=2)
    validate_server_chain(leaf.chain, leaf.fingerprint, NOW + timedelta(days=40))


def test_issuer_that_is_no_authority_is_refused() -> None:
    chain = server_chain_with(anchor=[(x509.BasicConstraints(ca=False, path_length=None), True)])
    with pytest.raises(BadCertificateChain, match="authority"):
        accept_server(chain)
    with pytest.raises(BadCertificateChain, match="authority"):
        validate_client_chain(chain, LATER)


def test_leaf_cannot_issue_further_leaves() -> None:
    credentials = chain_of(2)
    leaf = Authority(credentials.chain[0], credentials.private_key, credentials.chain[1:])
    forged = issue_leaf(leaf, "localhost", ED25519, now=NOW, serial=9)
    with pytest.raises(BadCertificateChain, match="authority"):
        accept_server(forged.chain)
    with pytest.raises(BadCertificateChain, match="authority"):
        validate_client_chain(forged.chain, LATER)


def key_usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, sign, False, False, False)


def test_issuer_whose_key_usage_forbids_signing_certificates_is_refused() -> None:
    accept_server(server_chain_with(anchor=[CA, (key_usage(sign=True), True)]))
    with pytest.raises(BadCertificateChain, match="may not sign"):
        accept_server(server_chain_with(anchor=[CA, (key_usage(sign=False), True)]))


def test_path_length_of_an_authority_is_kept() -> None:
    key, middle, leaf = (Ed25519PrivateKey.generate() for _ in range(3))
    short = (x509.BasicConstraints(ca=True, path_length=0), True)
    chain = (
        custom_certificate(leaf, middle, subject="leaf", issuer="middle"),
        custom_certificate(middle, key, subject="middle", issuer="anchor", extensions=[CA]),
        custom_certificate(key, key, subject="anchor", issuer="anchor", extensions=[short]),
    )
    with pytest.raises(BadCertificateChain, match="allows fewer certificates"):
        accept_server(chain)


@pytest.mark.parametrize("where", ["leaf", "anchor"])
def test_unknown_critical_extension_is_refused(where: str) -> None:
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")

    def chain(*, critical: bool) -> tuple[bytes, bytes]:
        extra = [(unknown, critical)]
        if where == "leaf":
            return server_chain_with(leaf=extra, anchor=[CA])
        return server_chain_with(anchor=[CA, *extra])

    accept_server(chain(critical=False))
    with pytest.raises(BadCertificateChain, match="unknown critical"):
        accept_server(chain(critical=True))


def test_issuer_with_another_kind_of_key_is_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "anchor")])
    anchor = x509.CertificateBuilder(name, name, other.public_key(), 1, NOW, LATER).add_extension(*CA)
    chain = (
        custom_certificate(Ed25519PrivateKey.generate(), other, subject="leaf", issuer="anchor"),
        anchor.sign(other, hashes.SHA256()).public_bytes(serialization.Encoding.DER),
    )
    with pytest.raises(BadCertificateChain, match="neither"):
        accept_server(chain)


# Chains of services


@pytest.mark.parametrize("algorithm", list(CertificateAlgorithm))
def test_one_self_signed_service_certificate_is_accepted(algorithm: CertificateAlgorithm) -> None:
    service = make_self_signed("service", new_private_key(algorithm), now=NOW, serial=1)
    fingerprint, key = validate_client_chain(service.chain, LATER)
    assert fingerprint == service.fingerprint == hashlib.sha256(service.chain[0]).digest()
    assert key == certificate_public_key(service.chain[0])


def test_one_service_certificate_that_is_not_self_signed_is_refused() -> None:
    with pytest.raises(BadCertificateChain, match="not issued"):
        validate_client_chain(chain_of(2).chain[:1], LATER)


@pytest.mark.parametrize("length", CHAIN_LENGTHS)
def test_service_may_present_a_certificate_for_servers_only(length: int) -> None:
    service = chain_of(length)
    fingerprint, _ = validate_client_chain(service.chain, LATER)
    assert fingerprint == service.fingerprint == hashlib.sha256(service.chain[1]).digest()


def test_service_chain_without_any_extension_is_accepted() -> None:
    """As the reference's genCredentials makes them; the anchor does not say that it is an authority."""
    validate_client_chain(server_chain_with(anchor=[]), LATER)


@pytest.mark.parametrize("count", [0, 5])
def test_service_chain_of_another_length_is_refused(count: int) -> None:
    with pytest.raises(BadCertificateChain, match="certificates"):
        validate_client_chain((chain_of(2).chain * 3)[:count], LATER)


# Any bytes


def test_recorded_chain_of_the_reference_is_accepted() -> None:
    recorded = Path(__file__).parents[2] / "wire_vectors" / "smp_handshake.json"
    vector = json.loads(recorded.read_text())["vectors"][0]
    chain = [bytes.fromhex(der) for der in vector["server_hello"]["fields"]["certs"]]
    key_hash = bytes.fromhex(vector["key_hash"])
    assert validate_server_chain(chain, key_hash, LATER) == certificate_public_key(chain[0])


def test_oversized_certificate_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(BadCertificateChain, match="bytes"):
        validate_client_chain([b"\x30" * 16_385], LATER)


@pytest.mark.parametrize("index", [0, 1])
def test_certificate_with_another_encoding_of_its_signature_is_refused(index: int) -> None:
    """The count of unused bits is outside what is signed; the parser accepts 1 if the last bit is 0."""
    chain = next(chain for chain in (chain_of(2).chain for _ in range(200)) if chain[index][-1] & 1 == 0)
    altered = bytearray(chain[index])
    assert altered[-65] == 0
    altered[-65] = 1
    x509.load_der_x509_certificate(bytes(altered))
    other = (*chain[:index], bytes(altered), *chain[index + 1 :])
    with pytest.raises(BadCertificateChain, match="whole number"):
        accept_server(other)
    with pytest.raises(BadCertificateChain, match="whole number"):
        validate_client_chain(other, LATER)


GOOD = chain_of(3).chain


@given(st.integers(0, 2), st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_altered_certificate_gives_the_same_key_or_our_error(index: int, at: int, flip: int) -> None:
    """No other exception, and no other key, wherever a byte changes."""
    chain = list(GOOD)
    altered = bytearray(chain[index])
    altered[at % len(altered)] ^= flip
    chain[index] = bytes(altered)
    try:
        key = accept_server(chain)
    except BadCertificateChain:
        return
    # The anchor's self-signature and dates prove nothing and are not checked.
    assert index == 2
    assert key == certificate_public_key(GOOD[0])


@given(st.lists(st.binary(max_size=300), max_size=5))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_give_only_our_error(chain: list[bytes]) -> None:
    for validate in (lambda: validate_client_chain(chain, LATER), lambda: accept_server([*chain, b"", b""])):
        with pytest.raises(BadCertificateChain):
            validate()


@given(st.integers(1, 400))
@settings(max_examples=100, deadline=None)
def test_truncated_certificate_is_refused(cut: int) -> None:
    with pytest.raises(BadCertificateChain):
        certificate_public_key(GOOD[0][: -min(cut, len(GOOD[0]))])
