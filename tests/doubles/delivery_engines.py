"""Both delivery engines of an NTF router, each with its own store, to compare on the same notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.doubles.push_provider import PATIENCE
from tests.unit.ntf_router.store.samples import ROUTER, device_token, filled
from tocsin.crypto.boxes import BoxKey
from tocsin.events.event_log import SEGMENTS
from tocsin.ntf_router.delivery.delivery import PushDelivery
from tocsin.ntf_router.delivery.handover import HandOver, handover_key
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import Accounting, ReceivedNotification, Recorded, TokenRecord
from tocsin.operate.clock import SystemClock
from tocsin.operate.randomness import SystemRandomness
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Provider

SETTINGS = DeliverySettings(retry_initial=0.02, retry_maximum=0.1)
PROVIDER = PushProvider.APNS_TEST


@dataclass
class Engine:
    store: NtfMemoryStore
    delivery: PushDelivery
    counters: NtfCounters

    async def token(self, name: str, *queues: str) -> TokenRecord:
        return await filled(self.store, name, *queues, device=device_token(name, PROVIDER))

    async def receive(self, *notifications: ReceivedNotification) -> None:
        """Stores all notifications before the delivery starts with any."""
        results = await self.store.add_notifications(ROUTER, notifications)
        for result in results:
            assert isinstance(result, Recorded), result
            self.delivery.notify(result.token_id, result.provider)

    async def settled(self) -> Accounting:
        """Waits until nothing is pending."""
        async with asyncio.timeout(PATIENCE * 20):
            while (accounting := await self.store.accounting()).pending:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert accounting.difference == 0
        return accounting


@asynccontextmanager
async def running_engine(
    providers: Mapping[PushProvider, Provider],
    job: HandOver | None = None,
    store: NtfMemoryStore | None = None,
    **changes: float,
) -> AsyncIterator[Engine]:
    """The inline engine, unless there is a job."""
    store, counters = store or NtfMemoryStore(), NtfCounters()
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]  # tests know which are times
    async with PushDelivery(
        store, providers, settings, counters, SystemClock(), SystemRandomness(), NoEvents(), job
    ) as delivery:
        yield Engine(store, delivery, counters)


@dataclass
class Meeting:
    """The folder between router and job."""

    folder: Path

    @property
    def keys(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-keys")

    @property
    def key(self) -> BoxKey:
        return handover_key(self.keys)

    def opened(self, patience: float = 60.0) -> HandOver:
        """Opens it like a router that starts."""
        return HandOver(self.folder, self.key, SystemRandomness(), patience=patience)

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(SEGMENTS))


@asynccontextmanager
async def working(meeting: Meeting, batch: Callable[[list[str], int], None]) -> AsyncIterator[None]:
    """A job in place of Spark's stream: `batch` is called, in a thread, with the names of new segments."""

    async def work() -> None:
        done, number = "", 0
        while True:
            if new := [name for name in meeting.segments() if name > done]:
                await asyncio.to_thread(batch, new, number)
                done, number = new[-1], number + 1
            await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        for each in results:
            if isinstance(each, Exception):
                raise each
