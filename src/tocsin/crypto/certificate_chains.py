"""Validating the certificate chains that peers present (smp.md 2.2 and 2.3).

A fingerprint alone proves nothing: anyone can send the real identity certificate behind a leaf of their own.
So every certificate must be issued and signed by the next one, from the leaf to the last, which is the trust
anchor. The reference checks only that a path exists, and not that the identity certificate is on it.

Every function here is total: any bytes give a result or `BadCertificateChain`.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtensionOID

from tocsin.crypto.credentials import chain_fingerprint
from tocsin.errors import BadCertificateChain

MIN_SERVER_CHAIN: Final = 2
MAX_CHAIN: Final = 4
MAX_CERTIFICATE_BYTES: Final = 16_384
"""A chain also travels in one 16 KiB block; certificates of the reference have less than 500 bytes."""

# Extensions whose meaning is checked here or cannot make a good chain bad. Others must not be critical.
_UNDERSTOOD: Final = frozenset(
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    }
)

_E = TypeVar("_E", bound=x509.ExtensionType)


class FingerprintMismatch(BadCertificateChain):
    """The identity certificate is not the one that the address names."""

    def __init__(self, expected: bytes, actual: bytes) -> None:
        super().__init__(f"the identity certificate is {actual.hex()}, not {expected.hex()}")
        self.expected = expected
        self.actual = actual


def validate_server_chain(chain: Sequence[bytes], key_hash: bytes, now: datetime) -> bytes:
    """The leaf's public key (SubjectPublicKeyInfo DER) of the router whose identity is `key_hash`.

    Raises `FingerprintMismatch` when the chain is another router's, `BadCertificateChain` when it proves
    nothing.
    """
    _require_length(chain, MIN_SERVER_CHAIN)
    actual = hashlib.sha256(chain[1]).digest()
    if not hmac.compare_digest(actual, key_hash):
        raise FingerprintMismatch(key_hash, actual)
    with _total():
        certificates = [_load(der) for der in chain]
        _check_path(certificates, now)
        _require_authority(certificates[-1], len(certificates) - 1)
        return _public_key(certificates[0])


def validate_client_chain(chain: Sequence[bytes], now: datetime) -> tuple[bytes, bytes]:
    """A service's fingerprint and its leaf's public key (SubjectPublicKeyInfo DER).

    One self-signed certificate, or two to four. No extended key usage is asked for: the reference NTF server
    presents its server certificate here. Nor must the anchor say that it is an authority: the reference's
    `genCredentials` makes service certificates without extensions. Raises `BadCertificateChain`.
    """
    _require_length(chain, 1)
    with _total():
        certificates = [_load(der) for der in chain]
        _check_path(certificates, now)
        if len(certificates) == 1:
            _require_issued(certificates[0], certificates[0])
        elif _extension(certificates[-1], x509.BasicConstraints) is not None:
            _require_authority(certificates[-1], len(certificates) - 1)
        return chain_fingerprint(chain), _public_key(certificates[0])


def certificate_public_key(der: bytes) -> bytes:
    """SubjectPublicKeyInfo DER of a certificate's Ed25519 or Ed448 key. Raises `BadCertificateChain`."""
    _require_size(der)
    with _total():
        return _public_key(_load(der))


@contextmanager
def _total() -> Iterator[None]:
    """Translate every exception of the X.509 parser into our error.

    It parses lazily: reading any attribute of a loaded certificate may raise ValueError, TypeError,
    UnsupportedAlgorithm, DuplicateExtension, OverflowError and more, so only `Exception` covers them.
    """
    try:
        yield
    except BadCertificateChain:
        raise
    except Exception as error:
        raise BadCertificateChain(f"a certificate cannot be read: {error}") from error


def _require_length(chain: Sequence[bytes], least: int) -> None:
    if not least <= len(chain) <= MAX_CHAIN:
        raise BadCertificateChain(f"a chain of {len(chain)} certificates, not {least} to {MAX_CHAIN}")
    for der in chain:
        _require_size(der)


def _require_size(der: bytes) -> None:
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise BadCertificateChain(f"a certificate of {len(der)} bytes")


def _load(der: bytes) -> x509.Certificate:
    certificate = x509.load_der_x509_certificate(der)
    # The octet before the signature counts its unused bits. The parser lets it be more than 0, and then one
    # certificate would have several encodings, and so several fingerprints.
    if der[-len(certificate.signature) - 1] != 0:
        raise BadCertificateChain("a signature that is not a whole number of bytes")
    return certificate


def _check_path(certificates: Sequence[x509.Certificate], now: datetime) -> None:
    """Check the leaf, every link, and all certificates below the anchor.

    The anchor's dates are not checked: its fingerprint makes it trusted.
    """
    if certificates[0].version is not x509.Version.v3:
        raise BadCertificateChain("the leaf is not an X.509 v3 certificate")
    for certificate in certificates:
        _refuse_unknown_critical_extensions(certificate)
    for certificate in certificates[: max(1, len(certificates) - 1)]:
        _require_valid_at(certificate, now)
    for index, certificate in enumerate(certificates[1:-1], start=1):
        _require_authority(certificate, index)
    for certificate, issuer in itertools.pairwise(certificates):
        _require_issued(certificate, issuer)


def _require_valid_at(certificate: x509.Certificate, now: datetime) -> None:
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise BadCertificateChain(
            f"a certificate is valid from {certificate.not_valid_before_utc} to "
            f"{certificate.not_valid_after_utc}, not at {now}"
        )


def _require_authority(certificate: x509.Certificate, index: int) -> None:
    """Check an issuer. `index` is its place in the chain, so `index - 1` authorities are below it."""
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        raise BadCertificateChain(
            f"certificate {index} of the chain issues others without being an authority"
        )
    if constraints.path_length is not None and constraints.path_length < index - 1:
        raise BadCertificateChain(f"certificate {index} allows fewer certificates below it in the chain")
    usage = _extension(certificate, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        raise BadCertificateChain(f"the key of certificate {index} of the chain may not sign certificates")


def _require_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> None:
    # Check the kind of key first, so that a stranger cannot cause costly RSA arithmetic.
    if not isinstance(issuer.public_key(), Ed25519PublicKey | Ed448PublicKey):
        raise BadCertificateChain("an issuer's key is neither Ed25519 nor Ed448")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise BadCertificateChain("a certificate was not issued by the next one of its chain") from error


def _refuse_unknown_critical_extensions(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if extension.critical and extension.oid not in _UNDERSTOOD:
            raise BadCertificateChain(f"unknown critical extension {extension.oid.dotted_string}")


def _extension(certificate: x509.Certificate, kind: type[_E]) -> _E | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _public_key(certificate: x509.Certificate) -> bytes:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey | Ed448PublicKey):
        raise BadCertificateChain("the leaf's key is neither Ed25519 nor Ed448")
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
