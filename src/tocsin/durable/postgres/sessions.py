"""A connection that is reopened whenever it breaks, for work that lasts as long as the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from asyncpg import Connection, Record

from tocsin.durable.commits import next_delay
from tocsin.durable.postgres.database_errors import translated
from tocsin.errors import StoreError

Connect: TypeAlias = Callable[[], Awaitable["Connection[Record]"]]

logger = logging.getLogger(__name__)


async def in_sessions(
    connect: Connect,
    session: Callable[[Connection[Record]], Awaitable[None]],
    what: str,
    longest_delay: float = float("inf"),
    unwanted: Callable[[], bool] = lambda: False,
) -> None:
    """Run `session` on a connection until it returns. After an error it runs again on another one, unless unwanted.

    `what` is the subject of the log's lines: "leases cannot be renewed".
    """
    delay = 0.0
    while True:
        try:
            with translated():
                connection = await connect()
            try:
                delay = 0.0
                with translated():
                    await session(connection)
                return
            finally:
                connection.terminate()
        except StoreError as error:
            logger.warning("%s at the moment: %s", what, error)
        except Exception:
            logger.exception("%s because of a defect", what)
        if unwanted():
            return
        delay = min(next_delay(delay), longest_delay)
        await asyncio.sleep(delay)
