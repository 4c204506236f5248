"""The package of the last release, taken from the repository's history, to run beside this one."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest

COMMIT: Final = "2f9209e796a157e0bf6006c35f92e1984d1e2868"
"""Its database has the migrations up to 0006 of the NTF router."""
ROOT: Final = Path(__file__).resolve().parents[2]


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def last_release(folder: Path) -> Path:
    """Unpack the package into a folder, and return what to put into PYTHONPATH. Skips the test without history."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("the last release is not here: this is no clone of the repository, or git is missing")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        pytest.skip("the last release is not here: clone the repository with its history")
    archive = _git("archive", "--format=zip", COMMIT, "src")
    assert archive.returncode == 0, archive.stderr.decode()
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(folder)
    return folder / "src"
