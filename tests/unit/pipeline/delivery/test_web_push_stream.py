"""Web Push from Spark executors: the real provider, a hostile service, and the same pushes as the inline engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_engines import SETTINGS, Engine, Meeting, running_engine
from tests.doubles.handover_channels import met
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.web_push_service import (
    HANG_UP,
    STALL,
    Answer,
    Behaviour,
    Raw,
    WebPushPhone,
    WebPushService,
)
from tests.unit.ntf_router.store.samples import received
from tests.unit.pipeline.delivery.test_handover_stream import start_query
from tests.unit.push.webpush.stage import web_push_settings
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.providers import opened_providers, required_vapid_key
from tocsin.ntf_router.store.records import Accounting, ReceivedNotification
from tocsin.operate.randomness import SystemRandomness
from tocsin.pipeline.delivery.shard_operator import ShardOperator
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import MessagePush, unseal_notifications
from tocsin.protocol.ntf.statuses import TokenStatus
from tocsin.protocol.ntf.web_push_tokens import WebPushForm
from tocsin.push.provider import Provider
from tocsin.push.settings import ApnsSettings, FcmSettings, WebPushSettings

WEBPUSH = PushProvider.WEBPUSH
NO_APNS = ApnsSettings(endpoints={})
HOST = "localhost"
ANSWERS = {
    "/gone": Answer(410),
    "/refused": Answer(413),
    "/moved": Answer(307, {"Location": "https://localhost/"}),
}
"""What the service answers to these endpoints. To all others it answers 201."""
FAILURES: list[Behaviour] = [
    Answer(429, {"Retry-After": "1"}),
    Answer(503),
    HANG_UP,
    Raw(b"not HTTP\r\n\r\n"),
]
"""The answers to one push, before it is accepted."""

pytestmark = pytest.mark.timeout(180)


class Pushed(NamedTuple):
    """What phones got, and what became of it."""

    told: dict[str, list[tuple[str, str, Any]]]
    """By endpoint, in their order: urgency, key of the router, and what the phone reads."""
    statuses: list[TokenStatus | None]
    accounting: Accounting


@pytest.fixture
def settings(tmp_path: Path) -> WebPushSettings:
    """Of a router that was started before."""
    made = web_push_settings(key_file=tmp_path / "vapid.pem", ca_file=tmp_path / "web-push-ca.pem")
    required_vapid_key(made)
    return made


async def in_time(condition: Callable[[], bool]) -> None:
    """Wait for it. Spark takes its time to start."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def phones_of(service: WebPushService) -> list[WebPushPhone]:
    made = [WebPushPhone(service, HOST, path) for path in ("/a", *ANSWERS)]
    return [*made, WebPushPhone(service, HOST, "/r", WebPushForm.REFERENCE)]


def notification(queue: str, number: int) -> ReceivedNotification:
    """One after the other."""
    return received(queue, number, 1_700_000_000.0 + number)


async def pushed(engine: Engine, service: WebPushService, phones: Sequence[WebPushPhone]) -> Pushed:
    service.received.clear()
    service.by_path.update(ANSWERS)
    nonces, secrets = count(1), {}
    owners = []
    for phone in phones:
        queues = [f"{phone.path}{number}" for number in range(3)]
        owners.append(await engine.token(phone.path, *queues, device=DeviceToken(WEBPUSH, phone.token)))
        secrets[phone.path] = box_key(owners[-1].dh_secret)
    for reached in (phones, [each for each in phones if each.path != "/gone"]):
        names = [f"{each.path}{number}" for each in reached for number in range(3)]
        await engine.receive(*(notification(each, next(nonces)) for each in names))
        await engine.settled()
    service.behaviours.extend(FAILURES)
    await engine.receive(notification(f"{phones[0].path}0", next(nonces)))
    await engine.settled()
    counters = engine.counters
    before = counters.notifications_verification_delivered
    engine.delivery.verify(owners[0])
    await in_time(lambda: counters.notifications_verification_delivered > before)
    told: dict[str, list[tuple[str, str, Any]]] = {}
    for each in service.received:
        [phone] = [phone for phone in phones if phone.path == each.path]
        push = phone.opened(each)
        read = unseal_notifications(secrets[each.path], push) if isinstance(push, MessagePush) else type(push)
        shown = each.headers["urgency"], each.headers["authorization"].partition("k=")[2], read
        told.setdefault(each.path, []).append(shown)
    found = [await engine.store.token(each.token_id) for each in owners]
    return Pushed(
        told, [None if each is None else each.status for each in found], await engine.store.accounting()
    )


@asynccontextmanager
async def by_spark(
    spark: SparkSession,
    folder: Path,
    settings: WebPushSettings,
    here: Provider,
    port: int,
    *,
    public_only: bool = False,
    patience: float = 10.0,
) -> AsyncIterator[Engine]:
    """`here` is what the router itself would push with."""
    async with met("folder", folder) as (channel, place, key):
        handover = HandOver(channel, key, SystemRandomness(), patience=60.0)
        operator = ShardOperator(
            {place.name: Meeting(folder / "handover").keys},
            NO_APNS,
            FcmSettings(),
            SETTINGS,
            patience,
            settings,
            public_only,
        )
        query = start_query(spark, place, operator, folder, [])
        try:
            services = (f"{HOST}:{port}",)
            async with running_engine({WEBPUSH: here}, handover, push_services=services) as engine:
                await in_time(lambda: not handover.away)
                yield engine
        finally:
            await asyncio.to_thread(query.stop)


def test_executors_push_to_web_push_services_as_the_router_does(
    spark: SparkSession, tmp_path: Path, settings: WebPushSettings
) -> None:
    async def both() -> tuple[Pushed, Pushed]:
        async with WebPushService(tmp_path).running((HOST,)) as service:
            phones = phones_of(service)
            async with (
                opened_providers(NO_APNS, settings, public_only=False) as providers,
                running_engine({WEBPUSH: providers[WEBPUSH]}) as engine,
            ):
                inline = await pushed(engine, service, phones)
            here = RecordingProvider()
            async with by_spark(spark, tmp_path, settings, here, service.port) as engine:
                found = await pushed(engine, service, phones)
            assert not here.sent
            return inline, found

    inline, found = asyncio.run(both())
    assert found == inline
    assert [len(found.told[path]) for path in ("/a", "/r", *ANSWERS)] == [
        2 + len(FAILURES) + 2,
        2,
        1,
        2,
        2,
    ]
    assert {key for each in found.told.values() for _, key, _ in each} != {""}


def test_executors_dial_no_private_addresses(
    spark: SparkSession, tmp_path: Path, settings: WebPushSettings
) -> None:
    async def run() -> None:
        async with WebPushService(tmp_path).running((HOST,)) as service:
            phone = WebPushPhone(service, HOST)
            async with by_spark(
                spark, tmp_path, settings, RecordingProvider(), service.port, public_only=True
            ) as engine:
                await engine.token("a", "q", device=DeviceToken(WEBPUSH, phone.token))
                await engine.receive(received("q"))
                await in_time(lambda: engine.counters.pushes_retried > 0)
            assert service.connections == 0

    asyncio.run(run())


def test_a_service_that_stalls_delays_one_batch_and_then_the_router_pushes(
    spark: SparkSession, tmp_path: Path, settings: WebPushSettings
) -> None:
    async def run() -> None:
        async with WebPushService(tmp_path).running((HOST,)) as service:
            here = RecordingProvider()
            phones = [WebPushPhone(service, HOST, path) for path in ("/a", "/b")]
            async with by_spark(spark, tmp_path, settings, here, service.port, patience=0.5) as engine:
                for phone in phones:
                    device = DeviceToken(WEBPUSH, phone.token)
                    await engine.token(phone.path, phone.path, device=device)
                service.by_path["/a"] = STALL
                for phone in phones:
                    await engine.receive(received(phone.path))
                    assert (await engine.settled()).failed == {}
            assert [each.device_token for each in here.sent] == [each.token for each in phones]
            assert [each.path for each in service.received] == ["/a"]

    asyncio.run(run())
