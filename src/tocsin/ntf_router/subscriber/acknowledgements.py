"""Acknowledges stored notifications to an SMP router, in direct sessions (decision 0009).

The count is cumulative, so one command acknowledges everything that was stored until then. It costs a block in each
direction, more than a notification, so it waits for others: for a few seconds, or until there are many. What was stored
and not acknowledged when this process is killed comes again, and is recognised.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from tocsin.clients import SmpClient
from tocsin.errors import ClientError, ResponseTimeout, TocsinError

DELAY_SECONDS: Final = 3.0
"""How long a notification may wait for its acknowledgement."""
MANY: Final = 500
"""Notifications that are acknowledged without that delay: far fewer than an SMP router lets wait (decision 0009)."""
PAUSE_SECONDS: Final = 0.05
"""Between two acknowledgements."""
LAST_SECONDS: Final = 1.0
"""For the last acknowledgement of a session that we end. What it does not confirm comes again."""

logger = logging.getLogger(__name__)


class Acknowledgements:
    """The notifications of one session that are stored. `run` acknowledges them until it is cancelled."""

    def __init__(self, client: SmpClient) -> None:
        self._client = client
        self._stored = 0
        self._acknowledged = 0
        self._more = asyncio.Event()
        self._many = asyncio.Event()

    def stored(self, count: int) -> None:
        """Count the next notifications of the session, in the order of their arrival."""
        self._stored += count
        if self._stored > self._acknowledged:
            self._more.set()
            if self._stored - self._acknowledged >= MANY:
                self._many.set()

    async def run(self) -> None:
        """Raises ConnectionLost. Returns if the SMP router does not want acknowledgements."""
        while self._client.direct:
            await self._more.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(DELAY_SECONDS):
                    await self._many.wait()
            try:
                await self._acknowledge()
            except ResponseTimeout:
                self._more.set()
            except ClientError as error:
                logger.warning("an SMP router refuses acknowledgements of its notifications: %s", error)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def finish(self) -> None:
        """Acknowledge what is stored by now, because the session ends. Failing does no harm."""
        if self._client.direct and self._stored > self._acknowledged:
            with suppress(TocsinError, TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._acknowledge()

    async def _acknowledge(self) -> None:
        self._more.clear()
        self._many.clear()
        count = self._stored
        await self._client.acknowledge_notifications(count)
        self._acknowledged = count
