"""The folder with a router's certificates, in the files and forms of the reference.

| File | Content |
|---|---|
| `ca.crt` | identity certificate, then its issuers if any |
| `ca.key` | the authority's private key; move it offline once the leaf is issued |
| `server.crt` | the leaf. A whole chain is read too, but never written: the reference would refuse it |
| `server.key` | the leaf's private key |
| `fingerprint` | base64url of the identity certificate's SHA-256, and a line feed |

Each file is replaced atomically; private keys get mode 0600.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Final

from tocsin.crypto.credentials import Authority, Credentials
from tocsin.errors import CryptoError, DecodeError, TransportError
from tocsin.wire.base64url import decode_base64url, encode_base64url

AUTHORITY_CERTIFICATE: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"
LEAF_CERTIFICATE: Final = "server.crt"
LEAF_KEY: Final = "server.key"
FINGERPRINT: Final = "fingerprint"

_PEM_CERTIFICATE_START: Final = b"-----BEGIN CERTIFICATE-----"
_MAX_FILE_BYTES: Final = 1 << 20
_PUBLIC: Final = 0o644
_PRIVATE: Final = 0o600

logger = logging.getLogger(__name__)


class CredentialFileError(TransportError):
    """A certificate or key file is missing, unreadable or does not match the others."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


def write_authority(folder: Path, authority: Authority) -> None:
    """Write `ca.key`, `ca.crt` and `fingerprint`, and create the folder (mode 0700) if it does not exist."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(folder / AUTHORITY_KEY, authority.private_key_pem, _PRIVATE)
    _write(folder / AUTHORITY_CERTIFICATE, authority.certificates_pem, _PUBLIC)
    _write_fingerprint(folder, authority.fingerprint)


def write_credentials(folder: Path, credentials: Credentials) -> None:
    """Write `server.key`, `server.crt`, `ca.crt` and `fingerprint`, but not `ca.key`.

    Two files cannot be replaced at once: after a crash between key and certificate, `read_credentials` says
    that they do not belong together, and issuing a leaf again repairs it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    leaf = Credentials(credentials.chain[:1], credentials.private_key)
    _write(folder / LEAF_KEY, credentials.private_key_pem, _PRIVATE)
    _write(folder / LEAF_CERTIFICATE, leaf.chain_pem, _PUBLIC)
    if len(credentials.chain) > 1:
        issuers = Credentials(credentials.chain[1:], credentials.private_key)
        _write(folder / AUTHORITY_CERTIFICATE, issuers.chain_pem, _PUBLIC)
    _write_fingerprint(folder, credentials.fingerprint)


def read_authority(folder: Path) -> Authority:
    """Raises CredentialFileError, which names the file."""
    certificate_file, key_file = folder / AUTHORITY_CERTIFICATE, folder / AUTHORITY_KEY
    certificates, key = _read(certificate_file), _read_private(key_file)
    try:
        return Authority.from_pem(certificates, key)
    except CryptoError as error:
        raise CredentialFileError(key_file, f"{error} (certificate: {certificate_file})") from error


def read_credentials(
    folder: Path,
    *,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
    authority_file: Path | None = None,
) -> Credentials:
    """Read the chain and key to serve with. Raises CredentialFileError, which names the file.

    A `server.crt` with only a leaf is completed with `ca.crt`. A `fingerprint` file, if there is one, must
    name the identity certificate: it is what addresses given out before say. Each file may be one elsewhere; with
    another certificate the fingerprint in the folder says nothing.
    """
    leaf_file, leaf_key = certificate_file or folder / LEAF_CERTIFICATE, key_file or folder / LEAF_KEY
    chain, key = _read(leaf_file), _read_private(leaf_key)
    if chain.count(_PEM_CERTIFICATE_START) == 1:
        chain = chain.rstrip() + b"\n" + _read(authority_file or folder / AUTHORITY_CERTIFICATE)
    try:
        credentials = Credentials.from_pem(chain, key)
    except CryptoError as error:
        raise CredentialFileError(leaf_file, f"{error} (key: {leaf_key})") from error
    saved = folder / FINGERPRINT
    if certificate_file is None and saved.exists() and read_fingerprint(folder) != credentials.fingerprint:
        raise CredentialFileError(saved, "the saved fingerprint is not that of the identity certificate")
    return credentials


def read_fingerprint(folder: Path) -> bytes:
    """Raises CredentialFileError."""
    path = folder / FINGERPRINT
    try:
        fingerprint = decode_base64url(_read(path).decode("ascii").strip())
    except (DecodeError, UnicodeDecodeError) as error:
        raise CredentialFileError(path, "not the base64url text of a fingerprint") from error
    if len(fingerprint) != 32:
        raise CredentialFileError(path, "not a SHA-256 fingerprint of 32 bytes")
    return fingerprint


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise CredentialFileError(path, "the file is missing; restore it from a backup") from error
    except OSError as error:
        raise CredentialFileError(path, f"the file cannot be read: {error.strerror}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise CredentialFileError(path, "the file is too large for certificates")
    return content


def _read_private(path: Path) -> bytes:
    content = _read(path)
    # Refusing would stop routers whose operators rely on the folder's mode, as the reference does.
    if path.stat().st_mode & 0o077:
        logger.warning("private key file %s can be read by other users; chmod 600 is advised", path)
    return content


def _write_fingerprint(folder: Path, fingerprint: bytes) -> None:
    _write(folder / FINGERPRINT, encode_base64url(fingerprint).encode("ascii") + b"\n", _PUBLIC)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: after a crash it has either the old or the new content."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise CredentialFileError(path, f"the file cannot be written: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
