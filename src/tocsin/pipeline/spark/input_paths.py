"""Paths as Spark accepts them: it reads some characters in a path as a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError

PATTERN_CHARACTERS: Final = frozenset("{}[]*?,\\")
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")


def require_plain_path(path: Path) -> None:
    """Raises ConfigError for a path that Spark would take for a pattern."""
    if found := sorted(PATTERN_CHARACTERS & set(str(path))):
        raise ConfigError(
            f"Spark reads {' '.join(found)} in {path} as a pattern: rename it, or link to it from a plain path"
        )


def literal_path(path: str) -> str:
    """The path as Spark must be given it to read exactly this file."""
    return _PATTERN.sub(r"\\\1", path)
