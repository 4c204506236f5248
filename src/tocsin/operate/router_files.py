"""What the commands of both routers share: certificates, settings files, addresses, and how settings are shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey

from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import Authority, CertificateAlgorithm, load_private_key
from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import DEFAULT_PORTS, RouterAddress, RouterLocation, Scheme, parse_host
from tocsin.transport.credential_files import (
    AUTHORITY_CERTIFICATE,
    AUTHORITY_KEY,
    FINGERPRINT,
    LEAF_CERTIFICATE,
    LEAF_KEY,
    CredentialFileError,
    read_authority,
    read_fingerprint,
    write_authority,
    write_credentials,
)
from tocsin.wire.base64url import encode_base64url

ALGORITHMS: Final = tuple(algorithm.value for algorithm in CertificateAlgorithm)
CREDENTIAL_FILES: Final = (AUTHORITY_CERTIFICATE, AUTHORITY_KEY, LEAF_CERTIFICATE, LEAF_KEY, FINGERPRINT)
KEEP_AUTHORITY_KEY: Final = (
    f"Keep {AUTHORITY_KEY} elsewhere: "
    "it is needed only for new certificates, and whoever has it is the router."
)


def refuse_existing_router(folder: Path, *settings_files: str) -> None:
    """Raises ConfigError if there is any file that a new router would get."""
    if existing := [name for name in (*CREDENTIAL_FILES, *settings_files) if (folder / name).exists()]:
        raise ConfigError(f"{folder} has a router already ({', '.join(existing)}): nothing is overwritten")


def make_router(
    folder: Path, settings_file: str, settings: str, host: str, algorithm: CertificateAlgorithm
) -> bytes:
    """Certificates and settings of a new router; its fingerprint. Raises ConfigError."""
    now = datetime.now(UTC)
    authority = make_authority(algorithm, now=now, serial=new_serial())
    leaf = issue_leaf(authority, host, algorithm, now=now, serial=new_serial())
    try:
        write_authority(folder, authority)
        write_credentials(folder, leaf)
        # Last, and only for its owner: it holds the passwords.
        descriptor = os.open(folder / settings_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(settings)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from error
    return authority.fingerprint


def renew_leaf(folder: Path, host: str, algorithm: str | None, *, dry_run: bool) -> None:
    """A new key and certificate for TLS under the authority in the folder, with its algorithm if none is chosen."""
    authority = read_authority(folder)
    # Certificates of another authority would change the router's address unnoticed.
    if authority.fingerprint != read_fingerprint(folder):
        problem = "the saved fingerprint is not that of the identity certificate"
        raise CredentialFileError(folder / FINGERPRINT, problem)
    chosen = CertificateAlgorithm(algorithm) if algorithm else _algorithm(authority)
    leaf = issue_leaf(authority, host, chosen, now=datetime.now(UTC), serial=new_serial())
    if not dry_run:
        write_credentials(folder, leaf)
    made = "would be replaced" if dry_run else "replaced"
    print(f"{LEAF_CERTIFICATE} and {LEAF_KEY} in {folder} {made}: {host}, {chosen.value}")
    print(f"Fingerprint as before: {encode_base64url(leaf.fingerprint)}")


def _algorithm(authority: Authority) -> CertificateAlgorithm:
    key = load_private_key(authority.private_key)
    return CertificateAlgorithm.ED448 if isinstance(key, Ed448PrivateKey) else CertificateAlgorithm.ED25519


def address_of(
    scheme: Scheme,
    public_hosts: Sequence[str],
    ports: Sequence[int],
    fingerprint: bytes,
    password: str | None = None,
) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    if not public_hosts:
        raise ConfigError("[TRANSPORT] host is not set: the router's address needs it")
    try:
        hosts = tuple(parse_host(host) for host in public_hosts)
    except DecodeError as error:
        raise ConfigError(f"[TRANSPORT] host: {error}") from error
    usual = DEFAULT_PORTS[scheme] in ports
    return RouterAddress(scheme, RouterLocation(hosts, "" if usual else str(ports[0]), fingerprint), password)
