"""Serving the page: to whom, and the address that is printed."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tocsin.web.page_access import TOKEN_PARAMETER, is_loopback
from tocsin.web.page_server import PageServer, Site
from tocsin.web.web_place import PagePlace

TOKEN_BYTES: Final = 24


@asynccontextmanager
async def served_page(site: Site, place: PagePlace) -> AsyncIterator[str]:
    """The address to open, with a token if one is needed. Raises ConnectFailed."""
    token = None if is_loopback(place.host) else secrets.token_urlsafe(TOKEN_BYTES)
    async with PageServer(site, host=place.host, port=place.port, token=token) as server:
        host = f"[{place.host}]" if ":" in place.host else place.host
        query = "" if token is None else f"?{TOKEN_PARAMETER}={token}"
        yield f"http://{host}:{server.port}/{query}"
