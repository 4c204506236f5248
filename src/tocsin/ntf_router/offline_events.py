"""Delivery events of commands that change a router's store, so that the accounting stays correct."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from tocsin.durable.log_files import FolderLock
from tocsin.events.event_log import PUBLISHED, opened_event_log
from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfLatencies

FOLDER: Final = ".offline"
LOCK: Final = "lock"


@asynccontextmanager
async def offline_events(settings: NtfSettings, instance: str) -> AsyncIterator[NtfEventRecorder]:
    """Record events in a folder of their own, and move them into the event log at the end.

    The router may be running, and a second writer in its folder would publish the router's open segment.
    """
    if settings.event_log is None:
        yield NtfEventRecorder(None, None, instance, NtfLatencies())
        return
    folder = settings.event_log / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = keys_folder(settings.event_log, settings.event_log_keys)
    lock = FolderLock(folder / LOCK)
    try:
        async with opened_event_log(replace(settings, event_log=folder, event_log_keys=keys)) as opened:
            assert opened is not None
            yield NtfEventRecorder(opened.log, opened.keys, instance, NtfLatencies())
    finally:
        for segment in sorted(folder.glob(PUBLISHED)):
            segment.rename(settings.event_log / segment.name)
        lock.release()
