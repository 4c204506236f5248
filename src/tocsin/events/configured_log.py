"""The delivery event log of a router's settings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tocsin.errors import ConfigError
from tocsin.events.event_log import EventLog, EventLogSettings
from tocsin.events.pseudonyms import PseudonymKeys, keys_folder

DAY: Final = 86_400.0

logger = logging.getLogger(__name__)


class SetsEventLog(Protocol):
    """What both routers' settings say of it."""

    @property
    def event_log(self) -> Path | None: ...
    @property
    def event_log_keys(self) -> Path | None: ...
    @property
    def event_log_retention_days(self) -> int: ...
    @property
    def event_log_bytes(self) -> int: ...
    @property
    def event_log_segment_seconds(self) -> float: ...


class OpenedEventLog(NamedTuple):
    log: EventLog
    keys: PseudonymKeys


@asynccontextmanager
async def opened_event_log(settings: SetsEventLog) -> AsyncIterator[OpenedEventLog | None]:
    """In the folder of the settings, if there is one; all of it is published at the end.

    Raises ConfigError if the folder cannot be used.
    """
    if settings.event_log is None:
        yield None
        return
    how = EventLogSettings(
        segment_seconds=settings.event_log_segment_seconds,
        retention_seconds=settings.event_log_retention_days * DAY,
        most_bytes=settings.event_log_bytes,
    )
    try:
        keys = PseudonymKeys(
            keys_folder(settings.event_log, settings.event_log_keys),
            settings.event_log_retention_days,
            time.time,
        )
        keys.current()
        log = EventLog(settings.event_log, how)
    except OSError as error:
        raise ConfigError(f"the event log cannot be used: {error.filename}: {error.strerror}") from error
    logger.info("delivery events are written to %s", settings.event_log)
    publishing = asyncio.create_task(_publish(log, settings.event_log_segment_seconds))
    try:
        yield OpenedEventLog(log, keys)
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await asyncio.to_thread(log.close)


async def _publish(log: EventLog, interval: float) -> None:
    """So that a quiet router's last events appear."""
    while True:
        await asyncio.sleep(interval)
        log.publish_if_due()
