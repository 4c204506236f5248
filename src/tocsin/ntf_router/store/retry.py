"""Repeats calls to a store that fails: a passing failure must not end anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tocsin.errors import StoreError

RETRY_SECONDS: Final = 1.0

R = TypeVar("R")

logger = logging.getLogger(__name__)


async def until_stored(
    what: str, call: Callable[[], Awaitable[R]], count_failure: Callable[[], None] | None = None
) -> R:
    """Repeat the call until it works. `what` names it in the log."""
    while True:
        try:
            return await call()
        except StoreError as error:
            if count_failure is not None:
                count_failure()
            await pause_after(what, error)


async def pause_after(what: str, error: StoreError) -> None:
    """Log a failure of the store, and wait before the next attempt."""
    logger.error("%s: the store failed, next attempt in %s s: %s", what, RETRY_SECONDS, error)
    await asyncio.sleep(RETRY_SECONDS)
