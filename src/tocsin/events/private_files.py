"""Files that name queues or notifications: readable by their owner alone, and either whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tocsin.errors import ConfigError


@contextmanager
def private_draft(path: Path) -> Iterator[Path]:
    """An empty file beside `path` that takes its place if the body succeeds. Raises ConfigError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            yield draft
            _sync(draft)
            draft.replace(path)
            _sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error


def write_private_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Raises ConfigError."""
    with private_draft(path) as draft, draft.open("wb", buffering=1 << 20) as file:
        for line in lines:
            file.write(line)
            file.write(b"\n")


def make_private_once(path: Path, content: bytes) -> None:
    """Unless it is there: made by whichever process is first, and none sees half of it, not even after a crash.

    Raises OSError.
    """
    if path.exists():
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # for its owner only
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
