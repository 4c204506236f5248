"""Where the page is served: what `--web` takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tocsin.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"
WEB_HELP: Final = (
    "where to serve the page: without a host on this machine only; with one that others can reach, a token "
    "is asked for, which the printed address carries"
)
_PLACE: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):)?(\d{1,5})")


@dataclass(frozen=True, slots=True)
class PagePlace:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> PagePlace:
        """Raises ConfigError."""
        found = _PLACE.fullmatch(text)
        if found is None or int(found[2]) > 65_535:
            raise ConfigError(f"--web {text}: a port is expected, or a host and a port: 127.0.0.1:8080")
        return cls((found[1] or LOOPBACK).strip("[]"), int(found[2]))
