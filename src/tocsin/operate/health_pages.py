"""`GET /health/live` and `GET /health/ready`, for whoever starts and watches the router."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from tocsin.operate.operator_pages import Page

LIVE: Final = "/health/live"
READY: Final = "/health/ready"


def health_pages(
    why_not_ready: Callable[[], Awaitable[str | None]],
) -> dict[str, Callable[[], Awaitable[Page]]]:
    """By path. `live` is answered by any process that turns its event loop; `ready` says why it is not."""

    async def live() -> Page:
        return Page("ok\n")

    async def ready() -> Page:
        reason = await why_not_ready()
        return Page("ok\n") if reason is None else Page(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    return {LIVE: live, READY: ready}
