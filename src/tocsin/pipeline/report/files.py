"""Files that appear whole: readers see the old one or the new one, also if the job is killed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tocsin.errors import StoreError


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Replaces those that are there. Raises StoreError if the folder cannot be written to."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            draft = folder / f".draft-{os.getpid()}-{name}"
            draft.write_text(text, encoding="utf-8", newline="")
            written.append(draft.replace(folder / name))
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
    return written
