"""The stream of `deliver`: same pushes as the inline engine, outcomes for each router, and no segment forgotten."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.doubles.delivery_engines import PROVIDER, SETTINGS, Engine, Meeting, running_engine
from tests.doubles.handover_channels import CHANNELS, met
from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import device_token, filler, received
from tocsin.crypto.boxes import box_key
from tocsin.errors import StoreError
from tocsin.events.event_log import OUTCOMES
from tocsin.ntf_router.delivery.channels.folder_channel import RouterFolder
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.outcome_rows import OutcomeRow, read_outcome_row
from tocsin.ntf_router.store.records import ReceivedNotification
from tocsin.operate.randomness import SystemRandomness
from tocsin.pipeline.delivery import handover_stream
from tocsin.pipeline.delivery.handover_stream import (
    FORM_FILE,
    DeliveredBatch,
    checkpoint_shards,
    start_deliver,
)
from tocsin.pipeline.delivery.shard_operator import SHARD, ShardOperator
from tocsin.pipeline.delivery.sink_notes import NOTES_FILE, SinkNote, SinkNotes
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, FcmSettings

SHARDS = 2
History = list[tuple[int, int]]
"""Which queue of the token has a notification, with how many bytes of metadata."""

histories = st.lists(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([1, 16, 144, 500])), min_size=1, max_size=12),
    min_size=12,
    max_size=12,
)
REFUSALS = [
    Respond(503, "ServiceUnavailable"),
    Respond(429, "TooManyRequests"),
    Respond(400, "PayloadEmpty"),
    Respond(410, "Unregistered", timestamp=1_000),
]
"""Of these some come first for each device. The last one is older than the device's registration."""


def apns_settings(apns: FakeApns) -> ApnsSettings:
    return ApnsSettings(endpoints={PROVIDER.text: ApnsEndpoint(apns.host, apns.port, apns.ca_file)})


def operator_of(meeting: Meeting, apns: FakeApns) -> ShardOperator:
    return ShardOperator(
        {meeting.place.name: meeting.keys}, apns_settings(apns), FcmSettings(), SETTINGS, 10.0
    )


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
async def spark_engine(
    spark: SparkSession,
    folder: Path,
    apns: FakeApns,
    batches: list[DeliveredBatch] | None = None,
    *,
    kind: str = "folder",
) -> AsyncIterator[Engine]:
    """`kind`: the channel between them."""
    meeting, told = Meeting(folder / "handover"), [] if batches is None else batches
    async with AsyncExitStack() as stack:
        channel, place, key = await stack.enter_async_context(met(kind, folder))
        opened = HandOver(channel, key, SystemRandomness(), patience=60.0)
        operator = replace(operator_of(meeting, apns), keys={place.name: meeting.keys})
        query = start_query(spark, place, operator, folder, told)
        stack.push_async_callback(asyncio.to_thread, query.stop)
        async with running_engine({PROVIDER: RecordingProvider()}, opened) as engine:
            async with asyncio.timeout(60):
                while opened.away:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            yield engine


def start_query(
    spark: SparkSession,
    place: RouterPlace,
    operator: ShardOperator,
    folder: Path,
    told: list[DeliveredBatch],
) -> StreamingQuery:
    return start_deliver(
        spark,
        [place],
        operator,
        checkpoint=folder / "checkpoint",
        interval=0.1,
        shards=SHARDS,
        delivered=told.append,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["folder", "tls"])
@settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(histories, st.lists(st.lists(st.sampled_from(REFUSALS), max_size=3), min_size=12, max_size=12))
def test_spark_pushes_what_the_inline_engine_pushes(
    spark: SparkSession, kind: str, history: list[History], refusals: list[list[Respond]]
) -> None:
    def refuse(apns: FakeApns) -> None:
        for number, each in enumerate(refusals):
            for refusal in each:
                apns.behave(refusal, device_token=device_token(f"token {number}", PROVIDER).token)

    async def both(folder: Path) -> tuple[dict[bytes, list[Any]], dict[bytes, list[Any]]]:
        async with running_fake_apns(folder / "inline") as apns:
            refuse(apns)
            [endpoint] = apns_settings(apns).endpoints.values()
            provider = ApnsProvider(endpoint, apns_settings(apns), None)
            async with running_engine({PROVIDER: provider}) as engine:
                inline = await deliver(engine, history, apns)
            await provider.close()
        async with running_fake_apns(folder / "spark") as apns:
            refuse(apns)
            async with spark_engine(spark, folder, apns, kind=kind) as engine:
                return inline, await deliver(engine, history, apns)

    with tempfile.TemporaryDirectory() as name:
        inline, by_spark = asyncio.run(both(Path(name)))
    assert by_spark == inline
    assert inline


@pytest.mark.parametrize("kind", CHANNELS)
def test_the_stream_pushes_what_is_handed_over_and_deletes_it(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Accepted, repeated after a rest in the state, and a verification push; then nothing is left."""
    batches = list[DeliveredBatch]()

    async def run() -> list[bytes | None]:
        async with running_fake_apns(tmp_path / "apns") as apns:
            slow = device_token("t0", PROVIDER).token
            apns.behave(Respond(429, "TooManyRequests"), device_token=slow, times=2)
            async with spark_engine(spark, tmp_path, apns, batches, kind=kind) as engine:
                owners = [await engine.token(f"t{number}", f"q{number}") for number in range(6)]
                await engine.receive(*(received(f"q{number}", number) for number in range(6)))
                assert (await engine.settled()).accepted == 6
                engine.delivery.verify(owners[0])
                await engine.receive(received("q0", "newer"))
                assert (await engine.settled()).accepted == 7
                async with asyncio.timeout(30):
                    while not engine.counters.notifications_verification_delivered:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.02)
                assert engine.counters.pushes_retried == 2
            return [each.header(b"apns-priority") for each in apns.pushes]

    priorities = asyncio.run(run())
    assert (priorities.count(None), priorities.count(b"5")) == (7, 1)  # without one, Apple takes the highest
    counted = {name: sum(each.counts.get(name, 0) for each in batches) for name in ("accepted", "retry")}
    assert counted == {"accepted": 8, "retry": 2}
    assert max(each.waiting for each in batches) == 1
    assert batches[-1].waiting == 0
    assert not (tmp_path / "checkpoint" / NOTES_FILE).exists()
    assert (
        len(Meeting(tmp_path / "handover").segments()) <= 2
    )  # the newest, and one that may not be committed


def test_outcomes_go_to_the_router_they_belong_to_and_shards_say_when_to_wake(tmp_path: Path) -> None:
    folders, told = {"a": tmp_path / "a", "b": tmp_path / "b"}, list[DeliveredBatch]()
    for folder in folders.values():
        folder.mkdir()
    notes = SinkNotes(tmp_path)
    channels = {name: RouterFolder(folder) for name, folder in folders.items()}
    batches = handover_stream._Batches(channels, notes, "stream", told.append)
    accepted, retry = OutcomeRow("life", (1, 2), "accepted"), OutcomeRow("life", (3,), "retry", due_in=2.0)
    shards = [
        OutcomeRow("0", (), SHARD, since=9.5, attempt=2),
        OutcomeRow("1", (), SHARD, since=8.5, attempt=1),
        OutcomeRow("2", (), SHARD),
    ]
    batches.publish({"a": [accepted], "b": [retry], "": shards}, 0)
    found = {
        name: [
            read_outcome_row(line)
            for path in (folder / OUTCOMES).iterdir()
            for line in path.read_bytes().splitlines()
        ]
        for name, folder in folders.items()
    }
    assert found == {"a": [accepted], "b": [retry]}
    [path] = (folders["a"] / OUTCOMES).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert notes.read() == SinkNote(8.5)
    batches.publish({"": [OutcomeRow("0", (), SHARD), OutcomeRow("1", (), SHARD)]}, 1)
    assert not (tmp_path / NOTES_FILE).exists()
    assert told == [DeliveredBatch(0, {"accepted": 1, "retry": 1}, 3), DeliveredBatch(1, {}, 0)]


def test_the_sink_keeps_carried_state_when_it_changes(tmp_path: Path) -> None:
    notes = SinkNotes(tmp_path)
    batches = handover_stream._Batches({}, notes, "stream", lambda _: None)
    batches.publish({}, 4, {0: b"zero", 1: b"one", 2: b""})
    assert (notes.read().state, notes.state(5)) == (5, {0: b"zero", 1: b"one"})
    batches.publish({}, 5, {1: b"one"})
    assert notes.read().state == 5
    batches.publish({}, 6, {0: b""})
    assert (notes.read().state, notes.state(7)) == (7, {1: b"one"})
    batches.publish({}, 7, {1: b""})
    assert notes.read().state == 0


def test_a_checkpoint_keeps_its_shards_and_another_release_is_refused_in_a_sentence(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    assert checkpoint_shards(new, None, 3) == 3
    assert checkpoint_shards(new, None, 8) == checkpoint_shards(new, 3, 8) == 3
    with pytest.raises(StoreError, match="has 3 shards instead of 4: leave --shards out, or delete it"):
        checkpoint_shards(new, 4, 4)
    for text, reason in [
        (json.dumps({"form": 1, "shards": 3}), "another release of Tocsin: delete it"),
        ("torn", "cannot be read: delete it"),
    ]:
        (new / FORM_FILE).write_text(text)
        with pytest.raises(StoreError, match=reason):
            checkpoint_shards(new, None, 3)
    carried = tmp_path / "carried"
    assert checkpoint_shards(carried, None, 2, carried=True) == 2
    with pytest.raises(StoreError, match="whose routers were reached over another channel: delete it"):
        checkpoint_shards(carried, None, 2)
    (old / "offsets").mkdir(parents=True)  # as the release before wrote it
    with pytest.raises(StoreError, match="an earlier release of Tocsin: delete it"):
        checkpoint_shards(old, None, 3)


def test_an_error_has_a_text_that_spark_can_search() -> None:
    long = RuntimeError("An error occurred\n" + "\tat a.b.c\n" * 5000 + "java.lang.InterruptedException")
    assert len(str(handover_stream._short(long))) < 500
    assert str(handover_stream._short(long)).endswith("An error occurred java.lang.InterruptedException")
    assert "InterruptedException" not in str(handover_stream._short(RuntimeError("disk full")))
