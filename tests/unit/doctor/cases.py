"""What tests of the doctor share: surroundings of their own, and findings by subject."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.doctor.examination import examine
from tocsin.doctor.findings import DiskSpace, DoctorSettings, Finding, Status
from tocsin.doctor.installations import FoundRouter, Installation, Kind
from tocsin.transport.credential_files import read_authority, write_authority, write_credentials

GIBIBYTE = 1 << 30
ED25519 = CertificateAlgorithm.ED25519


def surroundings(**changes: Any) -> DoctorSettings:
    facts: dict[str, Any] = {
        "disk_space": lambda _path: DiskSpace(100 * GIBIBYTE, 50 * GIBIBYTE),
        "clock_is_synchronized": lambda: True,
        "timeout": 5.0,
        **changes,
    }
    return DoctorSettings(**facts)


async def look(
    kind: Kind,
    config: Path,
    doctor: DoctorSettings | None = None,
    lake: Path | None = None,
    **settings: object,
) -> dict[str, Finding]:
    """Findings by subject; of several of one subject, the worst."""
    overrides = tuple(f"{name}={value}" for name, value in settings.items())
    installation = Installation((FoundRouter(kind, config, overrides),), lake)
    return by_subject(await examine(installation, doctor or surroundings(), {}))


def by_subject(findings: Iterable[Finding]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    order = [Status.OK, Status.SKIPPED, Status.WARN, Status.BAD]
    for each in sorted(findings, key=lambda each: order.index(each.status)):
        found[each.subject] = each
    return found


def statuses(found: dict[str, Finding], *subjects: str) -> Sequence[str]:
    return [found[subject].status.value for subject in subjects]


def reissue(folder: Path, *, began_days_ago: float, lasts_days: float) -> None:
    """Another certificate for TLS under the same identity."""
    authority = read_authority(folder)
    began = datetime.now(UTC) - timedelta(days=began_days_ago)
    leaf = issue_leaf(
        authority, "127.0.0.1", ED25519, now=began, serial=new_serial(), lifetime=timedelta(days=lasts_days)
    )
    write_credentials(folder, leaf)


def expired_identity(folder: Path) -> None:
    began = datetime.now(UTC) - timedelta(days=20)
    authority = make_authority(ED25519, now=began, serial=new_serial(), lifetime=timedelta(days=10))
    write_authority(folder, authority)
    write_credentials(folder, issue_leaf(authority, "127.0.0.1", ED25519, now=began, serial=new_serial()))


def aged(path: Path, seconds: float) -> Path:
    """The file as if it was written so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    before = path.stat().st_mode & 0o777
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)
