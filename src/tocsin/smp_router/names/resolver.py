"""Asks the operator's resolver for the record of a name: one HTTP request for each (v7.md 3).

A request has a time limit, an answer has a size limit, and redirects are not followed. Requests of all clients share
`MAX_AT_ONCE` connections; the wait for one counts as part of the time.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from typing import Final
from urllib.parse import quote

from tocsin.errors import DecodeError
from tocsin.operate.http_client import BadHttpAnswer, HttpEndpoint, LongHttpAnswer
from tocsin.protocol.error_codes import NameFault, ResolverFault, RouterError
from tocsin.protocol.smp.names import name_record
from tocsin.smp_router.settings.name_keys import may_authorize
from tocsin.smp_router.settings.settings import SmpNameSettings

logger = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 1000
_NOT_FOUND: Final = frozenset({400, 404})


class NameResolver:
    def __init__(self, settings: SmpNameSettings) -> None:
        assert settings.endpoint is not None
        self._settings: Final = settings
        headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), *_authorization(settings)]
        self._endpoint: Final = HttpEndpoint(settings.endpoint, headers, longest=settings.max_response_bytes)
        self._places: Final = asyncio.Semaphore(MAX_AT_ONCE)

    async def resolve(self, name: str) -> bytes | RouterError:
        """Return the record of a name as clients get it, or the error to answer with."""
        try:
            async with asyncio.timeout(self._settings.timeout), self._places:
                status, content = await self._endpoint.get(f"/resolve/{quote(name, safe='')}")
            if status in _NOT_FOUND:
                return NameFault.NOT_FOUND
            if status != 200:
                return ResolverFault(f"HTTP {status}")
            record = name_record(content)
        except TimeoutError:
            return ResolverFault("timeout")
        except LongHttpAnswer:
            return ResolverFault("response too large")
        except (DecodeError, BadHttpAnswer):
            return ResolverFault("invalid response")
        except OSError:
            return ResolverFault("transport failure")
        except Exception:
            logger.exception("cannot ask the resolver of names")
            return ResolverFault("resolver error")
        is_long = len(record) > self._settings.max_response_bytes  # unset members were added
        return ResolverFault("response too large") if is_long else record

    async def check(self) -> None:
        """Log whether the resolver answers. The router serves in any case."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                status, _ = await self._endpoint.get("/health")
            problem = "" if status == 200 else f"it answers with status {status}"
        except TimeoutError:
            problem = "it does not answer in time"
        except OSError as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            logger.warning(
                "the resolver of names at %s is not healthy (%s): names are not resolved until it is",
                self._endpoint.authority,
                problem,
            )


def _authorization(settings: SmpNameSettings) -> list[tuple[str, str]]:
    if settings.auth is None or not may_authorize(settings.endpoint or ""):
        return []
    kind, _, secret = settings.auth.partition(" ")
    is_basic = kind == "basic"
    value = f"Basic {b64encode(secret.encode()).decode()}" if is_basic else f"Bearer {secret}"
    return [("Authorization", value)]
