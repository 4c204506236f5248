"""Examines the certificates of a router: whether they match, their validity, and who may read the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.crypto.credentials import Credentials
from tocsin.doctor.findings import Finding, bad, ok, span, warn
from tocsin.errors import CryptoError
from tocsin.transport.credential_files import (
    AUTHORITY_KEY,
    LEAF_KEY,
    CredentialFileError,
    read_credentials,
)

SOON_SECONDS: Final = 30 * 86_400.0
SUBJECT: Final = "certificates"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    kind: str
    """smp or ntf, for commands in next steps."""
    folder: Path
    certificate_file: Path | None = None
    key_file: Path | None = None
    authority_file: Path | None = None

    @property
    def leaf_key(self) -> Path:
        return self.key_file or self.folder / LEAF_KEY


def credentials_found(files: CertificateFiles) -> tuple[Credentials | None, list[Finding]]:
    """The credentials, or a finding that says why they cannot be used."""
    try:
        credentials = read_credentials(
            files.folder,
            certificate_file=files.certificate_file,
            key_file=files.key_file,
            authority_file=files.authority_file,
        )
    except CredentialFileError as error:
        return None, [bad(SUBJECT, str(error), _step_for(str(error), files))]
    return credentials, []


def _step_for(text: str, files: CertificateFiles) -> str:
    renew = f"`tocsin {files.kind} cert` (it needs {AUTHORITY_KEY} in {files.folder})"
    if "does not belong" in text:
        return f"restore the key that belongs to the certificate, or create a new pair with {renew}"
    if "missing" in text:
        return f"restore the file from a backup, or create it with {renew}"
    if "fingerprint" in text:
        return "restore this router's certificates from a backup: with others its address changes and clients refuse it"
    return "check the file, its owner and its permissions"


def validity_findings(credentials: Credentials, files: CertificateFiles, now: float) -> Iterator[Finding]:
    today = datetime.fromtimestamp(now, UTC)
    names = ["the TLS certificate", "the identity certificate"]
    valid = []
    for number, der in enumerate(credentials.chain):
        certificate = x509.load_der_x509_certificate(der)
        name = names[number] if number < len(names) else f"issuer {number - 1} of the identity"
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        left = (ends - today).total_seconds()
        step = _renewal_step(number, files)
        if today < begins:
            yield bad(
                SUBJECT,
                f"{name} becomes valid only on {begins:%Y-%m-%d}, in {span((begins - today).total_seconds())}",
                "check the clock of this machine",
            )
        elif left < 0:
            yield bad(SUBJECT, f"{name} expired on {ends:%Y-%m-%d}, {span(left)} ago", step)
        elif left < SOON_SECONDS:
            yield warn(SUBJECT, f"{name} expires on {ends:%Y-%m-%d}, in {span(left)}", step)
        else:
            valid.append(f"{name} is valid until {ends:%Y-%m-%d}")
    if len(valid) == len(credentials.chain):
        yield from _chain_findings(credentials, files, today, "; ".join(valid))


def _chain_findings(
    credentials: Credentials, files: CertificateFiles, today: datetime, validity: str
) -> Iterator[Finding]:
    try:
        validate_server_chain(credentials.chain, credentials.fingerprint, today)
    except CryptoError as error:
        yield bad(
            SUBJECT,
            f"clients will refuse the certificates: {error}",
            f"restore them from a backup, or create a new TLS certificate with `tocsin {files.kind} cert`",
        )
    else:
        yield ok(SUBJECT, validity)


def _renewal_step(number: int, files: CertificateFiles) -> str:
    if number == 0:
        return f"run `tocsin {files.kind} cert`, which keeps the identity, then restart the router"
    return "set up a router with a new identity, give its address to the users, then retire this one"


def key_file_findings(files: CertificateFiles, settings_file: Path) -> Iterator[Finding]:
    """Find private files that other users may read."""
    private = {
        "TLS key": files.leaf_key,
        "identity key": files.folder / AUTHORITY_KEY,
        "settings": settings_file,
    }
    closed = []
    for what, path in private.items():
        try:
            mode = path.stat().st_mode & 0o777
        except OSError:
            continue  # another finding reports it, or it is kept offline as advised
        if mode & 0o007:
            yield bad(what, f"every user of this machine can read {path} ({mode:03o})", f"chmod 600 {path}")
        elif mode & 0o070:
            yield warn(what, f"the group of {path} can read it ({mode:03o})", f"chmod 600 {path}")
        else:
            closed.append(path.name)
    if closed:
        yield ok("permissions", f"only their owner can read {', '.join(closed)}")
