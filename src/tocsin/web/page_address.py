"""The place where the page is served: the value of `--web`, and the address to print."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tocsin.errors import ConfigError
from tocsin.web.page_access import TOKEN_PARAMETER, is_loopback
from tocsin.web.page_server import PageServer, Site

LOOPBACK: Final = "127.0.0.1"
TOKEN_BYTES: Final = 24
WEB_HELP: Final = (
    "where to serve the page: a port alone serves this machine only; with a host that others can reach, the page asks "
    "for a token, which is part of the printed address"
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
            raise ConfigError(f"--web {text}: expected a port, or a host and a port, such as 127.0.0.1:8080")
        return cls((found[1] or LOOPBACK).strip("[]"), int(found[2]))


@asynccontextmanager
async def serve_page(site: Site, place: PagePlace) -> AsyncIterator[str]:
    """Yields the address to open, with a token if the page needs one. Raises ConnectFailed."""
    token = None if is_loopback(place.host) else secrets.token_urlsafe(TOKEN_BYTES)
    async with PageServer(site, host=place.host, port=place.port, token=token) as server:
        host = f"[{place.host}]" if ":" in place.host else place.host
        query = "" if token is None else f"?{TOKEN_PARAMETER}={token}"
        yield f"http://{host}:{server.port}/{query}"
