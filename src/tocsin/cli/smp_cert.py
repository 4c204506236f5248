"""`tocsin smp cert`: a new certificate for TLS under the same authority."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey

from tocsin.cli.smp_files import ALGORITHMS, add_config_argument, settings_of
from tocsin.crypto.certificates import issue_leaf, new_serial
from tocsin.crypto.credentials import Authority, CertificateAlgorithm, load_private_key
from tocsin.errors import ConfigError
from tocsin.transport.credential_files import (
    FINGERPRINT,
    LEAF_CERTIFICATE,
    LEAF_KEY,
    CredentialFileError,
    read_authority,
    read_fingerprint,
    write_credentials,
)
from tocsin.wire.base64url import encode_base64url

NAME = "cert"
SUMMARY = "replace the certificate for TLS, keeping the router's identity"
DESCRIPTION = (
    "Makes a new key and certificate for TLS under the router's authority, whose key (ca.key) must be in the folder "
    "for it. The fingerprint, and so the router's address, stays the same. Restart the router to use it."
)
EXAMPLE = "tocsin smp cert --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument("--host", help="name in the certificate (default: the first host of the settings)")
    parser.add_argument("--algorithm", choices=ALGORITHMS, help="of the new key (default: the authority's)")
    parser.add_argument("--dry-run", action="store_true", help="check that it can be made, and write nothing")


def run(options: argparse.Namespace) -> int:
    settings = settings_of(options)
    folder = settings.credentials
    authority = read_authority(folder)
    # Certificates of another authority would change the router's address unnoticed.
    if authority.fingerprint != read_fingerprint(folder):
        problem = "the saved fingerprint is not that of the identity certificate"
        raise CredentialFileError(folder / FINGERPRINT, problem)
    host = options.host or next(iter(settings.public_hosts), None)
    if host is None:
        raise ConfigError("[TRANSPORT] host is not set: say --host")
    algorithm = CertificateAlgorithm(options.algorithm) if options.algorithm else _algorithm(authority)
    leaf = issue_leaf(authority, host, algorithm, now=datetime.now(UTC), serial=new_serial())
    if not options.dry_run:
        write_credentials(folder, leaf)
    made = "would be replaced" if options.dry_run else "replaced"
    print(f"{LEAF_CERTIFICATE} and {LEAF_KEY} in {folder} {made}: {host}, {algorithm.value}")
    print(f"Fingerprint as before: {encode_base64url(leaf.fingerprint)}")
    return 0


def _algorithm(authority: Authority) -> CertificateAlgorithm:
    key = load_private_key(authority.private_key)
    return CertificateAlgorithm.ED448 if isinstance(key, Ed448PrivateKey) else CertificateAlgorithm.ED25519
