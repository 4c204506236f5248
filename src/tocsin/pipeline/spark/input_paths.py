"""Paths as Spark accepts them: it reads some characters in a path as a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError

PATTERN_CHARACTERS: Final = frozenset("{}[]*?,\\")


def require_plain_path(path: Path) -> None:
    """Raises ConfigError for a path that Spark would take for a pattern."""
    if found := sorted(PATTERN_CHARACTERS & set(str(path))):
        raise ConfigError(
            f"Spark reads {' '.join(found)} in {path} as a pattern: rename it, or link to it from a plain path"
        )


def pattern_of_folders(folders: Sequence[Path], files: str) -> str:
    """One pattern for files with these names in all folders. Raises ConfigError for a path that is not a folder."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"no event log folder at {folder}: name the event_log of a router's configuration"
            )
        require_plain_path(folder)
    joined = ",".join(str(folder.resolve()).removeprefix("/") for folder in folders)
    return f"/{{{joined}}}/{files}"  # the root stays outside: Spark takes {/… for a relative path
