"""Certificates that one end of a connection presents, with their private key, and their PEM texts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey, Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tocsin.errors import BadCertificateChain, BadKey

CertificateKey: TypeAlias = Ed25519PrivateKey | Ed448PrivateKey
CertificatePublicKey: TypeAlias = Ed25519PublicKey | Ed448PublicKey


class CertificateAlgorithm(Enum):
    """Signature algorithms of certificates. Routers of the network use no others."""

    ED25519 = "ED25519"
    ED448 = "ED448"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that issues others, and its private key (PKCS#8 DER)."""

    certificate: bytes
    private_key: bytes = field(repr=False)
    issuers: tuple[bytes, ...] = ()
    """Certificates above this one, nearest first; empty when it is self-signed."""

    @property
    def fingerprint(self) -> bytes:
        """The identity of a router with this authority: SHA-256 of the certificate."""
        return hashlib.sha256(self.certificate).digest()

    @property
    def certificates_pem(self) -> bytes:
        """The certificate and its issuers, as in the reference's `ca.crt`."""
        return _certificates_pem((self.certificate, *self.issuers))

    @property
    def private_key_pem(self) -> bytes:
        """The private key as unencrypted PKCS#8 PEM."""
        return _armour("PRIVATE KEY", self.private_key)

    @classmethod
    def from_pem(cls, certificates: bytes, private_key: bytes) -> Self:
        """Raises BadCertificateChain or BadKey, the latter also when the key is another certificate's."""
        certificate, *issuers = certificates_from_pem(certificates)
        key = _private_key_from_pem(private_key)
        _require_pair(certificate, key)
        return cls(certificate, key, tuple(issuers))


@dataclass(frozen=True, slots=True)
class Credentials:
    """The chain that one end of a connection presents, leaf first, and the leaf's private key (PKCS#8 DER)."""

    chain: tuple[bytes, ...]
    private_key: bytes = field(repr=False)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the identity certificate: index 1, or the only one of a one-certificate service."""
        return chain_fingerprint(self.chain)

    @property
    def chain_pem(self) -> bytes:
        """The certificates, leaf first."""
        return _certificates_pem(self.chain)

    @property
    def private_key_pem(self) -> bytes:
        """The leaf's private key as unencrypted PKCS#8 PEM."""
        return _armour("PRIVATE KEY", self.private_key)

    @classmethod
    def from_pem(cls, chain: bytes, private_key: bytes) -> Self:
        """Raises BadCertificateChain or BadKey, the latter also when the key is not the leaf's."""
        certificates = certificates_from_pem(chain)
        key = _private_key_from_pem(private_key)
        _require_pair(certificates[0], key)
        return cls(certificates, key)


def chain_fingerprint(chain: Sequence[bytes]) -> bytes:
    """SHA-256 of a chain's identity certificate. Raises BadCertificateChain for an empty chain."""
    if not chain:
        raise BadCertificateChain("a chain without certificates has no fingerprint")
    return hashlib.sha256(chain[1] if len(chain) > 1 else chain[0]).digest()


def new_private_key(algorithm: CertificateAlgorithm) -> bytes:
    """A fresh PKCS#8 DER key from the system's random source."""
    key: CertificateKey
    match algorithm:
        case CertificateAlgorithm.ED25519:
            key = Ed25519PrivateKey.generate()
        case CertificateAlgorithm.ED448:
            key = Ed448PrivateKey.generate()
    return _private_der(key)


def load_private_key(der: bytes) -> CertificateKey:
    """The Ed25519 or Ed448 key in PKCS#8 DER. Raises BadKey."""
    try:
        key = serialization.load_der_private_key(der, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKey("not an unencrypted PKCS#8 private key") from error
    if not isinstance(key, Ed25519PrivateKey | Ed448PrivateKey):
        raise BadKey("the private key is neither Ed25519 nor Ed448")
    return key


def certificates_from_pem(pem: bytes) -> tuple[bytes, ...]:
    """DER of every certificate in a PEM text, at least one. Raises BadCertificateChain."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadCertificateChain("not a PEM text with certificates") from error
    return tuple(certificate.public_bytes(serialization.Encoding.DER) for certificate in certificates)


def _require_pair(certificate: bytes, private_key: bytes) -> None:
    try:
        certified = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificateChain("the certificate has no usable public key") from error
    if certified != load_private_key(private_key).public_key():
        raise BadKey("the private key does not belong to the certificate")


def _private_key_from_pem(pem: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKey("not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey | Ed448PrivateKey):
        raise BadKey("the private key is neither Ed25519 nor Ed448")
    return _private_der(key)


def _private_der(key: CertificateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificates_pem(chain: Sequence[bytes]) -> bytes:
    return b"".join(_armour("CERTIFICATE", der) for der in chain)


def _armour(label: str, der: bytes) -> bytes:
    """RFC 7468: base64 in lines of 64 between two markers."""
    text = base64.b64encode(der).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode()
