"""Lakes of jobs that only read."""

from __future__ import annotations

from pathlib import Path

from tocsin.errors import StoreError
from tocsin.pipeline.lake import Lake


def existing_lake(folder: Path) -> Lake:
    """Raises StoreError if there is none: a mistyped name must not become an empty lake."""
    if not folder.is_dir():
        raise StoreError(
            f"there is no lake at {folder}: name it with --lake, or make one with `tocsin pipeline ingest`"
        )
    return Lake(folder)
