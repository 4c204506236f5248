"""Both delivery engines of an NTF router, each with its own store, to compare on the same notifications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tests.doubles.push_provider import PATIENCE, RecordingProvider
from tests.unit.ntf_router.store.samples import ROUTER, device_token, filled
from tocsin.crypto.boxes import BoxKey
from tocsin.events.event_log import OUTCOMES, SEGMENTS
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.delivery import PushDelivery
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, read_row
from tocsin.ntf_router.delivery.outcome_rows import BEGUN_WORD, OutcomeRow, encode_outcome_rows
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import Accounting, ReceivedNotification, Recorded, TokenRecord
from tocsin.operate.clock import SystemClock
from tocsin.operate.randomness import SystemRandomness
from tocsin.pipeline.delivery.shard_batch import RouterRow, ShardBatch
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.push.provider import Provider, PushOutcome

SETTINGS = DeliverySettings(retry_initial=0.02, retry_maximum=0.1)
PROVIDER = PushProvider.APNS_TEST


@dataclass
class Engine:
    store: NtfMemoryStore
    delivery: PushDelivery
    counters: NtfCounters

    async def token(self, name: str, *queues: str, device: DeviceToken | None = None) -> TokenRecord:
        return await filled(self.store, name, *queues, device=device or device_token(name, PROVIDER))

    async def receive(self, *notifications: ReceivedNotification) -> None:
        """Stores all notifications before the delivery starts with any."""
        results = await self.store.add_notifications(ROUTER, notifications)
        for result in results:
            assert isinstance(result, Recorded), result
            self.delivery.notify(result.token_id, result.provider)

    async def settled(self, patience: float = PATIENCE * 20) -> Accounting:
        """Waits until nothing is pending."""
        async with asyncio.timeout(patience):
            while (accounting := await self.store.accounting()).pending:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert accounting.difference == 0
        return accounting


@asynccontextmanager
async def running_engine(
    providers: Mapping[PushProvider, Provider],
    job: HandOver | None = None,
    store: NtfMemoryStore | None = None,
    **changes: Any,
) -> AsyncIterator[Engine]:
    """The inline engine, unless there is a job."""
    store, counters = store or NtfMemoryStore(), NtfCounters()
    settings = replace(SETTINGS, **changes)
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
    def place(self) -> RouterPlace:
        return RouterPlace(str(self.folder), str(self.keys))

    @property
    def key(self) -> BoxKey:
        return handover_key(self.keys)

    def opened(
        self, patience: float = 60.0, now: Callable[[], float] = time.time, *, job_works: bool = True
    ) -> HandOver:
        """Opens it like a router that starts, and lets the job answer its question."""
        opened = HandOver(
            FolderChannel(self.folder, now), self.key, SystemRandomness(), now, patience=patience
        )
        if job_works:
            [asked] = self.rows()
            self.publish([OutcomeRow(asked.epoch, (asked.id,), BEGUN_WORD)], 0)
            opened.take_outcomes()
            assert not opened.away
        return opened

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(SEGMENTS))

    def rows(self, names: Sequence[str] | None = None) -> list[HandedRow]:
        """Of these segments, or of all."""
        found = []
        for name in self.segments() if names is None else names:
            with suppress(FileNotFoundError):  # the router deletes them when it begins anew
                found += [read_row(line) for line in (self.folder / name).read_bytes().splitlines()]
        return found

    def handed_over(self) -> list[HandedRow]:
        """The rows that are something to push."""
        return [row for row in self.rows() if row.kind != RowKind.BEGIN]

    def publish(self, answers: Sequence[OutcomeRow], number: int) -> None:
        draft = self.folder / OUTCOMES / f".draft-{number}"
        draft.write_bytes(encode_outcome_rows(answers))
        draft.rename(draft.with_name(f"{OUTCOMES}-{number:03d}.jsonl"))


class JobInProcess:
    """The `deliver` job without Spark: the operator of one shard."""

    def __init__(self, meeting: Meeting, *outcomes: PushOutcome) -> None:
        """Pushes get these outcomes, then they are accepted."""
        self.meeting = meeting
        self.provider = RecordingProvider()
        self.provider.answers.extend(outcomes)
        self.patience = PATIENCE
        self.state = b""
        self.due_at: float | None = None
        self.answers: list[OutcomeRow] = []
        self.sizes: list[int] = []
        """Rows of each batch."""
        self._numbers = count()

    def batch(self, names: Sequence[str]) -> None:
        batch = ShardBatch(self.state, {"": self.meeting.key}, SETTINGS, time.time())
        rows = self.meeting.rows(names)
        self.sizes.append(len(rows))
        batch.take(RouterRow("", number, row) for number, row in enumerate(rows))
        providers = dict.fromkeys(PushProvider, self.provider)
        asyncio.run(batch.push(providers, self.patience))
        self.state, self.due_at = batch.state, batch.due_at
        answers = [answer for _, answer in batch.answers]
        self.answers += answers
        if answers:
            self.publish(answers)

    def publish(self, answers: Sequence[OutcomeRow]) -> None:
        self.meeting.publish(answers, next(self._numbers))

    @property
    def is_due(self) -> bool:
        return self.due_at is not None and self.due_at <= time.time()

    def ids(self) -> list[str]:
        return [each.push_id for each in self.provider.sent]


class WorksOnSegments(Protocol):
    def batch(self, names: Sequence[str]) -> None: ...

    @property
    def is_due(self) -> bool: ...


@asynccontextmanager
async def working(meeting: Meeting, job: WorksOnSegments) -> AsyncIterator[None]:
    """The job, in a thread, with the names of new segments, and whenever something is to be repeated."""

    async def work() -> None:
        done = ""
        while True:
            new = [name for name in meeting.segments() if name > done]
            if new or job.is_due:
                await asyncio.to_thread(job.batch, new)
                done = new[-1] if new else done
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
