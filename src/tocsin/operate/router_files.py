"""The files and the address of a router: creating its certificates and settings, and renewing its certificate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey

from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import Authority, CertificateAlgorithm, Credentials, load_private_key
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

ALGORITHMS: Final = tuple(algorithm.value for algorithm in CertificateAlgorithm)
CREDENTIAL_FILES: Final = (AUTHORITY_CERTIFICATE, AUTHORITY_KEY, LEAF_CERTIFICATE, LEAF_KEY, FINGERPRINT)


def refuse_existing_router(folder: Path, *settings_files: str) -> None:
    """Raises ConfigError if the folder has any file that a new router would get."""
    if existing := [name for name in (*CREDENTIAL_FILES, *settings_files) if (folder / name).exists()]:
        raise ConfigError(
            f"{folder} already has files of a router ({', '.join(existing)}): nothing was changed. Choose another "
            "folder, or move these files away first"
        )


def make_router(
    folder: Path, settings_file: str, settings: str, host: str, algorithm: CertificateAlgorithm
) -> bytes:
    """Create the certificates and settings of a new router, and return its fingerprint. Raises ConfigError."""
    now = datetime.now(UTC)
    authority = make_authority(algorithm, now=now, serial=new_serial())
    leaf = issue_leaf(authority, host, algorithm, now=now, serial=new_serial())
    try:
        write_authority(folder, authority)
        write_credentials(folder, leaf)
        # Last, and readable only by its owner: the settings contain passwords.
        descriptor = os.open(folder / settings_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(settings)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror}. Choose a folder in which you may create "
            "files"
        ) from error
    return authority.fingerprint


def renew_leaf(
    folder: Path, host: str, algorithm: str | None, *, dry_run: bool
) -> tuple[Credentials, CertificateAlgorithm]:
    """Create a TLS key and certificate under the folder's authority, by default with the authority's algorithm."""
    authority = read_authority(folder)
    # Certificates of another authority would silently change the router's address.
    if authority.fingerprint != read_fingerprint(folder):
        problem = "it is not the fingerprint of ca.crt: restore both from the same backup"
        raise CredentialFileError(folder / FINGERPRINT, problem)
    chosen = CertificateAlgorithm(algorithm) if algorithm else _algorithm(authority)
    leaf = issue_leaf(authority, host, chosen, now=datetime.now(UTC), serial=new_serial())
    if not dry_run:
        write_credentials(folder, leaf)
    return leaf, chosen


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
        raise ConfigError(
            "[TRANSPORT] host is not set: set it to the router's host name, which its address needs"
        )
    try:
        hosts = tuple(parse_host(host) for host in public_hosts)
    except DecodeError as error:
        raise ConfigError(f"[TRANSPORT] host: {error}") from error
    usual = DEFAULT_PORTS[scheme] in ports
    return RouterAddress(scheme, RouterLocation(hosts, "" if usual else str(ports[0]), fingerprint), password)
