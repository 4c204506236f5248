"""Making the X.509 certificates of routers and services (smp.md 2.2 and 2.3).

A router has an offline `Authority` whose certificate's SHA-256 is its identity, and online `Credentials`: a
leaf issued by it. Rotation is `issue_leaf` again under the same authority. An authority may itself be issued
by an operator's, and that one by a network's (`make_authority`), giving chains of three and four.

Subjects, extensions and their order are those of the reference (`createServerX509_` in Server/CLI.hs).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tocsin.crypto.credentials import (
    Authority,
    CertificateAlgorithm,
    CertificateKey,
    CertificatePublicKey,
    Credentials,
    load_private_key,
    new_private_key,
)
from tocsin.errors import BadCertificateChain, CryptoError

__all__ = [
    "Authority",
    "CertificateAlgorithm",
    "Credentials",
    "issue_leaf",
    "make_authority",
    "make_self_signed",
    "new_serial",
]

REFERENCE_LIFETIME: Final = timedelta(days=999_999)
REFERENCE_AUTHORITY_NAME: Final = "SMP server CA"
REFERENCE_ORGANIZATION: Final = "SimpleX"

# GeneralizedTime has four digits for the year (RFC 5280, 4.1.2.5.2), and so has `datetime`.
_LAST_ENCODABLE_TIME: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

_Extensions: TypeAlias = Sequence[tuple[x509.ExtensionType, bool]]


def new_serial() -> int:
    """A random serial number of 20 bytes, as OpenSSL and so the reference make them."""
    return x509.random_serial_number()


def make_authority(
    algorithm: CertificateAlgorithm,
    *,
    now: datetime,
    serial: int,
    parent: Authority | None = None,
    common_name: str = REFERENCE_AUTHORITY_NAME,
    lifetime: timedelta = REFERENCE_LIFETIME,
    private_key: bytes | None = None,
) -> Authority:
    """Create an authority, with a fresh `private_key` (PKCS#8 DER) if none is given.

    It signs itself, or is under `parent`: a router's under its operator, or an operator's under a network.
    """
    key_der = private_key or new_private_key(algorithm)
    key = load_private_key(key_der)
    public_key, name = key.public_key(), _name(common_name, REFERENCE_ORGANIZATION)
    issuer_key = key if parent is None else load_private_key(parent.private_key)
    certificate = _sign(
        name,
        name if parent is None else _subject(parent.certificate),
        public_key,
        issuer_key,
        _authority_extensions(public_key, issuer_key.public_key()),
        _validity(now, lifetime),
        serial,
    )
    return Authority(certificate, key_der, () if parent is None else (parent.certificate, *parent.issuers))


def issue_leaf(
    authority: Authority,
    host: str,
    algorithm: CertificateAlgorithm,
    *,
    now: datetime,
    serial: int,
    lifetime: timedelta = REFERENCE_LIFETIME,
    private_key: bytes | None = None,
) -> Credentials:
    """Create online credentials for `host`. Raises CryptoError if `host` cannot be a common name."""
    key_der = private_key or new_private_key(algorithm)
    public_key = load_private_key(key_der).public_key()
    authority_key = load_private_key(authority.private_key)
    leaf = _sign(
        _name(host),
        _subject(authority.certificate),
        public_key,
        authority_key,
        _leaf_extensions(public_key, authority_key.public_key()),
        _validity(now, lifetime),
        serial,
    )
    return Credentials((leaf, authority.certificate, *authority.issuers), key_der)


def make_self_signed(
    common_name: str,
    private_key: bytes,
    *,
    now: datetime,
    serial: int,
    lifetime: timedelta = REFERENCE_LIFETIME,
) -> Credentials:
    """Create service credentials with one certificate, without extensions, like the reference's `genCredentials`.

    `private_key` is PKCS#8 DER.
    """
    key, name = load_private_key(private_key), _name(common_name)
    certificate = _sign(name, name, key.public_key(), key, (), _validity(now, lifetime), serial)
    return Credentials((certificate,), private_key)


def _authority_extensions(public_key: CertificatePublicKey, issuer_key: CertificatePublicKey) -> _Extensions:
    return (
        (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), False),
        (x509.BasicConstraints(ca=True, path_length=None), True),
    )


def _leaf_extensions(public_key: CertificatePublicKey, issuer_key: CertificatePublicKey) -> _Extensions:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=True,
        key_agreement=True,
        key_encipherment=False,
        data_encipherment=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        (x509.BasicConstraints(ca=False, path_length=None), False),
        (usage, False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), False),
    )


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: CertificatePublicKey,
    signing_key: CertificateKey,
    extensions: _Extensions,
    validity: tuple[datetime, datetime],
    serial: int,
) -> bytes:
    builder = x509.CertificateBuilder(issuer, subject, public_key, serial, *validity)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signing_key, None).public_bytes(serialization.Encoding.DER)


def _validity(now: datetime, lifetime: timedelta) -> tuple[datetime, datetime]:
    start = now.astimezone(UTC).replace(microsecond=0)
    return start, start + min(lifetime, _LAST_ENCODABLE_TIME - start)


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    try:
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    except ValueError as error:
        raise CryptoError(f"{common_name!r} cannot be the name in a certificate: {error}") from error
    return x509.Name(attributes)


def _subject(certificate: bytes) -> x509.Name:
    try:
        return x509.load_der_x509_certificate(certificate).subject
    except ValueError as error:
        raise BadCertificateChain("the authority's certificate cannot be read") from error
