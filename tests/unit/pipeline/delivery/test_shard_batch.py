"""A batch of a shard: what it takes, what it pushes, and what it keeps."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.doubles.delivery_engines import PROVIDER, Engine, JobInProcess, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import ROUTER, device_token, queue, received, token
from tests.unit.pipeline.delivery.test_token_pushes import KEY, NOW, notification, rows_of
from tocsin.crypto.boxes import box_key
from tocsin.crypto.web_push import WebPushSecret
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, RowWriter, read_row
from tocsin.ntf_router.delivery.outcome_rows import OutcomeRow
from tocsin.ntf_router.delivery.pushes import code_request
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.store.records import Associated, DuePush, Recorded
from tocsin.pipeline.delivery import shard_batch
from tocsin.pipeline.delivery.shard_batch import MANY_FAILURES, RouterRow, ShardBatch
from tocsin.pipeline.delivery.token_pushes import LATE_ANSWERS
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.provider import (
    Accepted,
    Provider,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    RetryScope,
    TokenInvalid,
    Urgency,
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


async def test_what_is_never_answered_in_time_goes_back_to_the_router() -> None:
    provider = RecordingProvider()
    provider.hold()
    state, given_back = b"", list[OutcomeRow]()
    rows, now = [handed("a"), handed("b", 2)], NOW
    while not given_back:
        batch = await pushed(state, rows, provider, patience=0.05, now=now)
        given_back = [answer for _, answer in batch.answers if answer.due_in is None]
        state, rows, now = batch.state, [], now + BACK_OFF
    assert sorted((answer.reason, answer.ids, answer.pushed) for answer in given_back) == [
        ("timeout", (1,), True),
        ("timeout", (2,), True),
    ]
    assert len(provider.sent) == 2 * (LATE_ANSWERS + 1)
    assert state == b""


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
    """Answers each device by its own scripts, one for messages and one for other pushes, then accepts."""

    def __init__(self, tokens: list[Drawn]) -> None:
        super().__init__()
        self._scripts = {
            (each.device(number).token, urgency): list(outcomes)
            for number, each in enumerate(tokens)
            for urgency, outcomes in each.scripts.items()
        }

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        script = self._scripts.get((push.device_token, push.urgency))
        self.answers.clear()
        if script:
            self.answers.append(script.pop(0))
        super().submit(push, answered)


OUTCOMES = [
    Accepted(),
    RetryLater("429", RetryScope.TOKEN),
    RetryLater("503", RetryScope.PROVIDER),
    RetryLater("429", RetryScope.TOKEN, after=0.01),
    PushRefused("PayloadEmpty"),
    TokenInvalid(InvalidReason.UNREGISTERED, since=1.0),
    TokenInvalid(InvalidReason.BAD),
]
QUEUES = 8
SERVICE = "push.test"
RECEIVER = WebPushSecret(bytes(range(48))).receiver
VERIFY, REMIND = "verification", "periodic"
History: TypeAlias = list[tuple[int, int]]
"""Which queue of the token has a notification, with how many bytes of metadata."""
Step: TypeAlias = History | str
"""What happens to a token, and has its outcomes before the next step."""


class Drawn(NamedTuple):
    """What happens to a token, and how its provider answers."""

    steps: list[Step]
    direct: int
    """So many of its queues have direct notifications."""
    scripts: dict[Urgency, list[PushOutcome]]
    web_push: WebPushForm | None

    def device(self, number: int) -> DeviceToken:
        if self.web_push is None:
            return device_token(str(number), PROVIDER)
        address = WebPushAddress(RECEIVER, SERVICE, 443, f"/{number}", self.web_push)
        return DeviceToken(PushProvider.WEBPUSH, address.token())


histories = st.lists(
    st.tuples(st.integers(0, QUEUES - 1), st.sampled_from([1, 144, 500, 2900])), min_size=1, max_size=12
)
answers = st.lists(st.sampled_from(OUTCOMES), max_size=4)
drawn_tokens = st.builds(
    Drawn,
    st.lists(st.one_of(histories, st.sampled_from([VERIFY, REMIND])), min_size=1, max_size=4),
    st.integers(0, QUEUES),
    st.fixed_dictionaries({Urgency.ALERT: answers, Urgency.BACKGROUND: answers}),
    st.sampled_from([None, None, *WebPushForm]),
)


class Seen(NamedTuple):
    """What devices got, and what became of it."""

    told: dict[bytes, list[tuple[str, Urgency, Any]]]
    """By device, in their order: push id, urgency and what it reads."""
    statuses: list[TokenStatus | None]
    accounting: Any
    direct: set[bytes]
    """The queues with direct notifications."""


async def delivered(engine: Engine, provider: RecordingProvider, tokens: list[Drawn]) -> Seen:
    """Every step begins when the one before has its outcomes."""
    times, nonces = count(1), count(1)
    owners = []
    direct = set()
    for number, each in enumerate(tokens):
        names = [f"{number}/{queue_number}" for queue_number in range(QUEUES)]
        device = each.device(number)
        owners.append(owner := await engine.token(str(number), *names[each.direct :], device=device))
        for name in names[: each.direct]:
            assert await engine.store.associate(owner.token_id, queue(name), 1) is Associated.ADDED
            direct.add(queue(name).notifier_id)
    secrets = {owner.device_token.token: box_key(owner.dh_secret) for owner in owners}
    reminded = set[int]()
    others = 0
    for step in range(max(len(each.steps) for each in tokens)):
        for number, each in enumerate(tokens):
            happens = each.steps[step] if step < len(each.steps) else []
            if happens == VERIFY:
                others += 1
                engine.delivery.verify(owners[number])
            elif happens == REMIND:
                others += number not in reminded  # the next one is due only after the period
                reminded.add(number)
                engine.delivery.check_messages(owners[number])
            else:
                assert not isinstance(happens, str)
                arrived = [
                    received(
                        f"{number}/{queue_number}", next(nonces), 1_700_000_000.0 + next(times)
                    )._replace(sealed_meta=bytes(size))
                    for queue_number, size in happens
                ]
                # One queue's newer one replaces the older at once: both engines see the same store.
                for result in await engine.store.add_notifications(ROUTER, arrived):
                    if isinstance(result, Recorded):  # the token may be invalid by now
                        engine.delivery.notify(result.token_id, result.provider)
        await others_have_outcomes(engine, others)
        accounting = await engine.settled()
        await statuses_are_stored(engine)  # or what comes next may still be taken
        for owner, each in zip(owners, tokens, strict=True):
            if each.steps[step : step + 1] == [VERIFY]:  # the device returns the code
                await engine.store.activate_token(owner.token_id, owner.code)
    told: dict[bytes, list[tuple[str, Urgency, Any]]] = {}
    for push in provider.sent:
        message = parse_push_json(push.payload)
        read = (
            unseal_notifications(secrets[push.device_token], message)
            if isinstance(message, MessagePush)
            else type(message)
        )
        told.setdefault(push.device_token, []).append((push.push_id, push.urgency, read))
    found = [await engine.store.token(owner.token_id) for owner in owners]
    return Seen(told, [None if each is None else each.status for each in found], accounting, direct)


async def others_have_outcomes(engine: Engine, wanted: int) -> None:
    counters = engine.counters
    async with asyncio.timeout(20):
        while wanted > (  # noqa: ASYNC110 - nobody tells
            counters.notifications_verification_delivered
            + counters.notifications_verification_failed
            + counters.notifications_periodic_delivered
            + counters.notifications_periodic_failed
        ):
            await asyncio.sleep(0.01)


async def statuses_are_stored(engine: Engine) -> None:
    async with asyncio.timeout(20):
        while engine.delivery._outcomes._invalid or engine.delivery._outcomes._confirmed:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


LATER = RetryLater("429", RetryScope.TOKEN)
EVERY_KIND = [
    Drawn([[(0, 144)], VERIFY, REMIND], 0, {Urgency.ALERT: [LATER], Urgency.BACKGROUND: []}, None),
    Drawn([[(0, 144)], [(1, 144)]], 1, {Urgency.ALERT: [LATER] * 2, Urgency.BACKGROUND: []}, None),
    Drawn(
        [[(0, 144)], [(1, 144)]],
        0,
        {Urgency.ALERT: [Accepted(), TokenInvalid(InvalidReason.BAD)], Urgency.BACKGROUND: []},
        WebPushForm.COMPACT,
    ),
]
"""Tokens with which everything happens that the test asks for, whatever else is drawn."""


def kinds_of(seen: Seen) -> Iterator[str]:
    """What of interest happened."""
    for pushes in seen.told.values():
        for (push_id, urgency, read), times in Counter(
            (push_id, urgency, read if isinstance(read, type) else None) for push_id, urgency, read in pushes
        ).items():
            del push_id
            yield f"{urgency.value} {read.__name__ if read else 'messages'}"
            if times > 1 and read is None:
                yield "messages repeated at once"
            if times > 2 and read is None:
                yield "messages repeated after a rest"
        for _, _, read in pushes:
            if not isinstance(read, type) and any(each.queue.notifier_id in seen.direct for each in read):
                yield "direct"
    for status in seen.statuses:
        if status is not None and status.state is TokenState.INVALID:
            yield "invalid"


def test_both_engines_push_the_same_for_the_same_input() -> None:
    """Retries, refused and invalid tokens, priorities, direct notifications, and pushes that follow each other."""
    kinds = Counter[str]()

    @settings(max_examples=25, deadline=None)
    @example(EVERY_KIND)
    @given(st.lists(drawn_tokens, min_size=1, max_size=3))
    def compare(tokens: list[Drawn]) -> None:
        async def inline() -> Seen:
            provider = Scripted(tokens)
            both: dict[PushProvider, Provider] = {PROVIDER: provider, PushProvider.WEBPUSH: provider}
            async with running_engine(both) as engine:
                return await delivered(engine, provider, tokens)

        async def by_job(folder: Path) -> Seen:
            meeting = Meeting(folder / "handover")
            job = JobInProcess(meeting)
            job.provider = Scripted(tokens)
            here = RecordingProvider()
            both: dict[PushProvider, Provider] = {PROVIDER: here, PushProvider.WEBPUSH: here}
            async with (
                running_engine(both, meeting.opened(), push_services=(SERVICE,)) as engine,
                working(meeting, job),
            ):
                seen = await delivered(engine, job.provider, tokens)
            assert not here.sent
            return seen

        with tempfile.TemporaryDirectory() as name:
            seen = asyncio.run(by_job(Path(name)))
        assert seen == asyncio.run(inline())
        kinds.update(kinds_of(seen))
        kinds.update(
            "web push"
            for number, each in enumerate(tokens)
            if each.web_push and each.device(number).token in seen.told
        )

    compare()
    # All of it happened. Otherwise equal pushes would not say much.
    assert set(kinds) == {
        "alert messages",
        "background VerificationPush",
        "background CheckMessagesPush",
        "messages repeated at once",
        "messages repeated after a rest",
        "direct",
        "invalid",
        "web push",
    }, kinds
