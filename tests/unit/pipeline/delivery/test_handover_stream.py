"""The stream of `deliver`: same pushes as the inline engine, once per batch, and no segment forgotten."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.doubles.delivery_engines import PROVIDER, Engine, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import filler, received
from tocsin.crypto.boxes import box_key
from tocsin.events.event_log import OUTCOMES
from tocsin.ntf_router.store.records import ReceivedNotification
from tocsin.pipeline.delivery import handover_stream
from tocsin.pipeline.delivery.handover_pusher import FolderAnswers, HandoverPusher
from tocsin.pipeline.delivery.handover_source import SCHEMA
from tocsin.pipeline.delivery.handover_stream import (
    DeliveredBatch,
    publish_outcomes,
    push_segments,
    start_deliver,
)
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

SHARDS = 2
History = list[tuple[int, int]]
"""Which queue of the token has a notification, with how many bytes of metadata."""

histories = st.lists(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([1, 16, 144, 500])), min_size=1, max_size=12),
    min_size=1,
    max_size=4,
)


def apns_settings(apns: FakeApns) -> ApnsSettings:
    return ApnsSettings(endpoints={PROVIDER.text: ApnsEndpoint(apns.host, apns.port, apns.ca_file)})


def pusher_of(meeting: Meeting, apns: FakeApns) -> HandoverPusher:
    return HandoverPusher((meeting.folder,), (meeting.keys,), apns_settings(apns), 10.0)


async def deliver(
    engine: Engine, history: list[History], apns: FakeApns, since: int = 0
) -> dict[bytes, list[Any]]:
    """By device, in their order: push id and what the device reads. Half of them are pushed before the rest comes.

    `since`: so many pushes were there before.
    """
    times, nonces = count(1), count(1)
    secrets = {}
    for number in range(len(history)):
        owner = await engine.token(f"token {number}", *(f"{number}/{each}" for each in range(9)))
        secrets[owner.device_token.token] = box_key(owner.dh_secret)

    def notification(number: int, queue: int, size: int) -> ReceivedNotification:
        made = received(f"{number}/{queue}", next(nonces), 1_700_000_000.0 + next(times))
        return made._replace(sealed_meta=filler("meta", size))

    for half in (0, 1):
        for number, each in enumerate(history):
            cut = len(each) // 2
            part = each[cut:] if half else each[:cut]
            # One queue's newer one replaces the older at once: both engines see the same store.
            await engine.receive(*(notification(number, queue, size) for queue, size in part))
        await engine.settled()
    told: dict[bytes, list[Any]] = {}
    for push in apns.pushes[since:]:
        message = parse_push_json(push.payload)
        assert isinstance(message, MessagePush)
        read = unseal_notifications(secrets[push.device_token], message)
        shown = push.header(b"apns-id"), push.header(b"apns-expiration"), read
        told.setdefault(push.device_token, []).append(shown)
    return told


@asynccontextmanager
async def spark_engine(spark: SparkSession, folder: Path, apns: FakeApns) -> AsyncIterator[Engine]:
    meeting = Meeting(folder / "handover")
    pusher, opened = pusher_of(meeting, apns), meeting.opened()

    def batch(segments: list[str], number: int) -> None:
        rows = [(0, name, shard, SHARDS) for shard in range(SHARDS) for name in segments]
        for folder_number, lines, _ in push_segments(spark.createDataFrame(rows, SCHEMA), pusher).collect():
            publish_outcomes(meeting.folder, f"{number}-{folder_number}-{next(NUMBERS)}", bytes(lines))

    async with running_engine({PROVIDER: RecordingProvider()}, opened) as engine, working(meeting, batch):
        yield engine


NUMBERS = count()


@settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(histories)
def test_both_engines_give_the_same_pushes(spark: SparkSession, history: list[History]) -> None:
    async def both(folder: Path) -> tuple[dict[bytes, list[Any]], dict[bytes, list[Any]]]:
        async with running_fake_apns(folder / "inline") as apns:
            [endpoint] = apns_settings(apns).endpoints.values()
            provider = ApnsProvider(endpoint, apns_settings(apns), None)
            async with running_engine({PROVIDER: provider}) as engine:
                inline = await deliver(engine, history, apns)
            await provider.close()
        async with (
            running_fake_apns(folder / "spark") as apns,
            spark_engine(spark, folder, apns) as engine,
        ):
            return inline, await deliver(engine, history, apns)

    with tempfile.TemporaryDirectory() as name:
        inline, by_spark = asyncio.run(both(Path(name)))
    assert by_spark == inline
    assert inline


def test_the_stream_pushes_what_is_handed_over_and_deletes_it(spark: SparkSession, tmp_path: Path) -> None:
    """Accepted, retried, refused for good; then a batch that was published before a crash is not pushed again."""
    meeting, batches = Meeting(tmp_path / "handover"), list[DeliveredBatch]()

    async def run() -> int:
        async with running_fake_apns(tmp_path / "apns") as apns:
            apns.behave(Respond(503, "ServiceUnavailable"))
            opened = meeting.opened()
            query = start_deliver(
                spark,
                [meeting.folder],
                pusher_of(meeting, apns),
                checkpoint=tmp_path / "checkpoint",
                interval=0.1,
                shards=SHARDS,
                delivered=batches.append,
            )
            try:
                async with running_engine({PROVIDER: RecordingProvider()}, opened) as engine:
                    for number in range(6):
                        await engine.token(f"t{number}", f"q{number}")
                    await engine.receive(*(received(f"q{number}", number) for number in range(6)))
                    assert (await engine.settled()).accepted == 6
                    await engine.receive(received("q0", "newer"))
                    assert (await engine.settled()).accepted == 7
            finally:
                await asyncio.to_thread(query.stop)
            return len(apns.pushes)

    assert asyncio.run(run()) == 7
    counted = {name: sum(each.counts.get(name, 0) for each in batches) for name in ("accepted", "retry")}
    assert counted == {"accepted": 7, "retry": 1}
    assert len(meeting.segments()) <= 2  # the newest, and one whose batch may not be committed
    done = handover_stream._Batches([meeting.folder], tmp_path / "checkpoint", batches.append)
    nothing: Any = None  # a batch that is looked at again would fail
    done(nothing, batches[-1].number)


class _Rows:
    """Rows as `foreachBatch` gets them, already pushed."""

    def __init__(self, *answers: FolderAnswers) -> None:
        self._answers = answers

    def collect(self) -> list[tuple[int, bytes, str]]:
        return [(each.folder, each.lines, json.dumps(each.counts)) for each in self._answers]


def test_outcomes_go_to_the_router_they_belong_to(tmp_path: Path) -> None:
    folders, told = [tmp_path / "a", tmp_path / "b"], list[DeliveredBatch]()
    for folder in folders:
        folder.mkdir()
    batches = handover_stream._Batches(folders, tmp_path / "checkpoint", told.append)
    rows: Any = _Rows(
        FolderAnswers(0, b"1\n", {"accepted": 1}),
        FolderAnswers(1, b"2\n", {"retry": 1}),
        FolderAnswers(0, b"3\n", {"accepted": 1}),
    )
    batches(rows, 0)
    found = [[path.read_bytes() for path in (folder / OUTCOMES).iterdir()] for folder in folders]
    assert found == [[b"1\n3\n"], [b"2\n"]]
    [path] = (folders[0] / OUTCOMES).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert told == [DeliveredBatch(0, {"accepted": 2, "retry": 1})]
