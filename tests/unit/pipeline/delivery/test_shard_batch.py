"""A batch of a shard: what it takes, what it pushes, and what it keeps."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.delivery_engines import PROVIDER, Engine, JobInProcess, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import ROUTER, device_token, queue, received, token
from tests.unit.pipeline.delivery.test_token_pushes import KEY, NOW, notification, rows_of
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, RowWriter, read_row
from tocsin.ntf_router.delivery.pushes import code_request
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.store.records import Associated, DuePush, Recorded
from tocsin.pipeline.delivery import shard_batch
from tocsin.pipeline.delivery.shard_batch import MANY_FAILURES, RouterRow, ShardBatch
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import (
    Provider,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    RetryScope,
    TokenInvalid,
)

BEGIN = HandedRow("new", 0, RowKind.BEGIN)
TOKEN_LATER = RetryLater("429", RetryScope.TOKEN)
DOWN = RetryLater("connection", RetryScope.PROVIDER)
BACK_OFF = 5.0


def handed(name: str, number: int = 1, attempt: int = 0) -> HandedRow:
    """A notification of a token, with a queue of its own."""
    due = DuePush(token(name), (notification(number, 20, pending=True, at=float(number)),))
    [row] = rows_of(due, number, attempt)
    return row


async def pushed(
    state: bytes,
    rows: list[HandedRow],
    provider: RecordingProvider,
    *,
    now: float = NOW,
    patience: float = 5.0,
    router: str = "r",
) -> ShardBatch:
    batch = ShardBatch(state, {router: KEY}, DeliverySettings(), now)
    batch.take(RouterRow(router, number, row) for number, row in enumerate(rows))
    providers: dict[PushProvider, Provider] = {PushProvider.APNS_PROD: provider}
    await batch.push(providers, patience)
    return batch


def outcomes(batch: ShardBatch) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(answer.outcome, answer.reason, answer.ids) for _, answer in batch.answers]


async def test_a_batch_without_trouble_leaves_no_state() -> None:
    provider = RecordingProvider()
    batch = await pushed(b"", [handed("a", 1), handed("b", 2), handed("a", 3)], provider)
    assert sorted(answer.ids for _, answer in batch.answers) == [(1, 3), (2,)]
    assert (batch.state, batch.changed, batch.due_at, batch.waiting) == (b"", False, None, 0)
    assert len(provider.sent) == 2


async def test_a_token_in_back_off_is_the_state_until_it_is_due() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    first = await pushed(b"", [handed("a")], provider)
    assert first.changed
    assert first.due_at is not None
    assert first.due_at >= NOW + 2
    idle = await pushed(first.state, [handed("b")], provider, now=NOW + 1)
    assert not idle.changed
    assert len(provider.sent) == 3
    newer = await pushed(first.state, [handed("a", 2)], provider, now=NOW + 1)
    assert outcomes(newer) == [("retry", "backing_off", (2,))]
    assert newer.waiting == 1
    assert len(provider.sent) == 3
    due = await pushed(newer.state, [], provider, now=NOW + BACK_OFF)
    assert outcomes(due) == [("accepted", "", (1, 2))]
    assert (due.state, due.changed) == (b"", True)


async def test_a_new_epoch_forgets_the_old_one() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    waiting = await pushed(b"", [handed("a")], provider)
    later = msgspec.structs.replace(handed("b", 5), epoch="new")
    batch = await pushed(waiting.state, [handed("c", 2), BEGIN, later], provider, now=NOW + BACK_OFF)
    assert outcomes(batch) == [("begun", "", (0,)), ("accepted", "", (5,))]
    assert batch.state == b""
    assert len(provider.sent) == 3


async def test_a_router_that_is_not_served_any_more_leaves_nothing() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    waiting = await pushed(b"", [handed("a")], provider)
    batch = await pushed(waiting.state, [], provider, router="other", now=NOW + BACK_OFF)
    assert (batch.state, batch.answers) == (b"", [])


async def test_an_outage_of_a_provider_neither_fills_the_state_nor_tries_everything() -> None:
    provider = RecordingProvider()
    provider.answers.extend([DOWN] * 10_000)
    tokens = 2_000
    batch = await pushed(b"", [handed(f"t{number}", number) for number in range(tokens)], provider)
    assert (batch.state, batch.waiting) == (b"", 0)
    assert len(provider.sent) < MANY_FAILURES + 2 * shard_batch.AT_ONCE
    final = {number for _, answer in batch.answers if answer.due_in is None for number in answer.ids}
    assert final == set(range(tokens))
    assert sum(answer.pushed for _, answer in batch.answers) == len(provider.sent)


async def test_the_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_batch, "MOST_WAITING", 3)
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER] * 20)
    batch = await pushed(b"", [handed(f"t{number}", number) for number in range(10)], provider)
    assert batch.waiting == 3
    given_back = [answer for _, answer in batch.answers if answer.due_in is None]
    assert len(given_back) == 7
    more = RecordingProvider()
    more.answers.extend([TOKEN_LATER] * 4)
    rows = [handed(f"u{number}", 100 + number) for number in range(2)]
    again = await pushed(batch.state, rows, more, now=NOW + 1)
    assert again.waiting == 3
    assert not again.changed


async def test_what_has_no_answer_in_time_is_pushed_in_the_next_batch() -> None:
    provider = RecordingProvider()
    provider.hold()
    batch = await pushed(b"", [handed("a")], provider, patience=0.01)
    assert outcomes(batch) == [("retry", "timeout", (1,))]
    assert batch.due_at is not None
    assert batch.due_at <= NOW
    provider.release()
    again = await pushed(batch.state, [], provider)
    assert outcomes(again) == [("accepted", "", (1,))]
    assert provider.sent[0] == provider.sent[1]


async def test_what_has_no_room_in_time_goes_back_without_an_attempt() -> None:
    class Full(RecordingProvider):
        async def wait_for_room(self) -> None:
            await super().next_request(b"never")

    provider = Full()
    provider.room = 0
    batch = await pushed(b"", [handed("a")], provider, patience=0.01)
    assert outcomes(batch) == [("retry", "no_room", (1,))]
    assert [answer.pushed for _, answer in batch.answers] == [False]


async def test_a_provider_that_is_not_configured_is_the_routers_affair() -> None:
    batch = ShardBatch(b"", {"r": KEY}, DeliverySettings(), NOW)
    batch.take([RouterRow("r", 1, handed("a"))])
    await batch.push({}, 1.0)
    assert outcomes(batch) == [("retry", "not_served", (1,))]


async def test_control_pushes_get_a_share_and_one_attempt() -> None:
    provider = RecordingProvider()
    writer, owner = RowWriter(KEY), token("z")
    request = code_request(owner, bytes(24), 4_000_000_000)
    line = writer.control("life", 50, RowKind.VERIFICATION, PushProvider.APNS_PROD, request, bytes(24))
    rows = [handed(f"t{number}", number) for number in range(9)]
    batch = await pushed(b"", [*rows, read_row(line)], provider)
    assert provider.sent[3] == request
    assert ("accepted", "", (50,)) in outcomes(batch)
    provider.answers.append(TOKEN_LATER)
    batch = await pushed(b"", [read_row(line)], provider)
    assert outcomes(batch) == [("retry", "429", (50,))]
    assert batch.state == b""


class Scripted(RecordingProvider):
    """Answers each device by its own script, then accepts."""

    def __init__(self, scripts: list[list[PushOutcome]]) -> None:
        super().__init__()
        self._scripts = {
            device_token(str(number), PROVIDER).token: list(script) for number, script in enumerate(scripts)
        }

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        script = self._scripts.get(push.device_token)
        self.answers.clear()
        if script:
            self.answers.append(script.pop(0))
        super().submit(push, answered)


OUTCOMES = [
    RetryLater("429", RetryScope.TOKEN),
    RetryLater("503", RetryScope.PROVIDER),
    RetryLater("429", RetryScope.TOKEN, after=0.01),
    PushRefused("PayloadEmpty"),
    TokenInvalid(InvalidReason.UNREGISTERED, since=1.0),
    TokenInvalid(InvalidReason.BAD),
]
QUEUES = 8
DIRECT = 3
"""Of so many queues of a token, notifications come directly."""
scripts = st.lists(st.sampled_from(OUTCOMES), max_size=3)
histories = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.sampled_from([1, 144, 500, 2900])), min_size=1, max_size=12
)


async def delivered(
    engine: Engine, provider: RecordingProvider, given_histories: list[list[tuple[int, int]]]
) -> tuple[dict[bytes, list[Any]], Any]:
    """What devices get, and the accounting. Half of it comes when the first half has its outcomes."""
    times, nonces, secrets, counters = count(1), count(1), {}, engine.counters
    owners = []
    for number in range(len(given_histories)):
        owner = await engine.token(str(number), *(f"{number}/{each}" for each in range(DIRECT, QUEUES)))
        for each in range(DIRECT):
            associated = await engine.store.associate(owner.token_id, queue(f"{number}/{each}"), 1)
            assert associated is Associated.ADDED
        secrets[owner.device_token.token] = box_key(owner.dh_secret)
        owners.append(owner)
    for owner in owners:
        engine.delivery.verify(owner)
    await all_of(
        len(owners),
        lambda: counters.notifications_verification_delivered + counters.notifications_verification_failed,
    )
    for owner in owners:
        engine.delivery.check_messages(owner)
    await all_of(
        len(owners),
        lambda: counters.notifications_periodic_delivered + counters.notifications_periodic_failed,
    )
    await invalid_ones_are_stored(engine)  # or what comes next may still be taken
    for half in (0, 1):
        for number, history in enumerate(given_histories):
            cut = len(history) // 2
            arrived = [
                received(f"{number}/{each}", next(nonces), 1_700_000_000.0 + next(times))._replace(
                    sealed_meta=bytes(size)
                )
                for each, size in (history[cut:] if half else history[:cut])
            ]
            # One queue's newer one replaces the older at once: both engines see the same store.
            for result in await engine.store.add_notifications(ROUTER, arrived):
                if isinstance(result, Recorded):  # the token may be invalid by now
                    engine.delivery.notify(result.token_id, result.provider)
        accounting = await engine.settled()
    told: dict[bytes, list[Any]] = {}
    for push in provider.sent:
        message = parse_push_json(push.payload)
        read = (
            unseal_notifications(secrets[push.device_token], message)
            if isinstance(message, MessagePush)
            else type(message)
        )
        told.setdefault(push.device_token, []).append((push.push_id, push.urgency, read))
    return told, accounting


async def invalid_ones_are_stored(engine: Engine) -> None:
    async with asyncio.timeout(20):
        while engine.delivery._outcomes._invalid:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def all_of(wanted: int, counted: Callable[[], int]) -> None:
    async with asyncio.timeout(20):
        while counted() < wanted:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(histories, scripts), min_size=1, max_size=3))
def test_both_engines_push_the_same_for_the_same_input(
    tokens: list[tuple[list[tuple[int, int]], list[PushOutcome]]],
) -> None:
    """Retries, refused and invalid tokens, priorities, direct notifications, and pushes that follow each other."""
    given_histories, given_scripts = [each[0] for each in tokens], [each[1] for each in tokens]

    async def inline() -> tuple[dict[bytes, list[Any]], Any]:
        provider = Scripted(given_scripts)
        async with running_engine({PROVIDER: provider}) as engine:
            return await delivered(engine, provider, given_histories)

    async def by_job(folder: Path) -> tuple[dict[bytes, list[Any]], Any]:
        meeting = Meeting(folder / "handover")
        job = JobInProcess(meeting)
        job.provider = Scripted(given_scripts)
        opened = meeting.opened()
        async with running_engine({PROVIDER: RecordingProvider()}, opened) as engine, working(meeting, job):
            return await delivered(engine, job.provider, given_histories)

    with tempfile.TemporaryDirectory() as name:
        assert asyncio.run(by_job(Path(name))) == asyncio.run(inline())
