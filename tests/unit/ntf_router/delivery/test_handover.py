"""`delivery_engine: spark`, the router's side: what is handed over, and what the job's outcomes do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import PROVIDER, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import received
from tocsin.errors import ConfigError
from tocsin.events.event_log import OUTCOMES
from tocsin.ntf_router.delivery import handover
from tocsin.ntf_router.delivery.handover import KEY_FILE, HandOver, handover_key, read_handover_key
from tocsin.ntf_router.delivery.handover_lines import (
    TOO_LARGE,
    Composed,
    compose,
    encode_returned,
    is_probe,
    opened,
    read_line,
    returned,
)
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.randomness import SystemRandomness
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "handover")


class Job:
    """Answers each push with the next outcome, the last one for ever."""

    def __init__(self, meeting: Meeting, *outcomes: PushOutcome) -> None:
        self._meeting = meeting
        self._outcomes = list(outcomes) or [Accepted()]
        self.pushes: list[Composed] = []

    def __call__(self, segments: list[str], number: int) -> None:
        answers = []
        for segment in segments:
            for text in (self._meeting.folder / segment).read_bytes().splitlines():
                line = read_line(text)
                if is_probe(line.id):
                    answers.append(returned(line.id, None, Accepted()))
                    continue
                composed = compose(opened(line, self._meeting.key))
                self.pushes.append(composed)
                outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
                if composed.request is None:
                    outcome = PushRefused(TOO_LARGE)
                answers.append(returned(line.id, composed, outcome))
        self.publish(number, encode_returned(answers))

    def publish(self, number: int, lines: bytes) -> None:
        draft = self._meeting.folder / OUTCOMES / f".draft-{number}"
        draft.write_bytes(lines)
        draft.rename(draft.with_name(f"{OUTCOMES}-{number:03d}.jsonl"))

    def ids(self) -> list[str]:
        return [each.request.push_id for each in self.pushes if each.request is not None]


async def test_messages_are_pushed_by_the_job_and_not_by_the_router(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), Job(meeting)
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        await engine.token("a", "q1", "q2")
        await engine.receive(received("q1", 1, 1.0), received("q2", 2, 2.0))
        accounting = await engine.settled()
        assert accounting.accepted == 2
        assert engine.counters.notifications_delivered == 1
        assert engine.delivery.waiting == 0
    assert [each.taken for each in job.pushes] == [2]
    assert provider.sent == []


async def test_more_than_a_push_can_carry_is_handed_over_again(meeting: Meeting) -> None:
    job = Job(meeting)
    async with (
        running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine,
        working(meeting, job),
    ):
        queues = [f"q{number}" for number in range(8)]
        await engine.token("a", *queues)
        await engine.receive(*(received(name, name, 1.0 + at) for at, name in enumerate(queues)))
        assert (await engine.settled()).accepted == 8
    assert [(each.taken, each.more) for each in job.pushes] == [(6, True), (2, False)]


async def test_what_may_pass_is_handed_over_again_with_the_same_id(meeting: Meeting) -> None:
    later = RetryLater("503", RetryScope.PROVIDER)
    job = Job(meeting, later, later, Accepted())
    async with (
        running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine,
        working(meeting, job),
    ):
        await engine.token("a", "q")
        await engine.receive(received("q"))
        assert (await engine.settled()).accepted == 1
        assert engine.counters.pushes_retried == 2
    assert len(job.ids()) == 3
    assert len(set(job.ids())) == 1


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (PushRefused("PayloadEmpty"), {"PayloadEmpty": 1}),
        (TokenInvalid(InvalidReason.UNREGISTERED), {"token_invalid": 1}),
        (TokenInvalid(InvalidReason.UNREGISTERED, since=1.0), {"stale_refusal": 1}),
    ],
)
async def test_failures_are_recorded_as_by_the_inline_engine(
    meeting: Meeting, outcome: PushOutcome, failed: dict[str, int]
) -> None:
    job = Job(meeting, outcome)
    async with (
        running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine,
        working(meeting, job),
    ):
        owner = await engine.token("a", "q")
        await engine.receive(received("q"))
        assert (await engine.settled()).failed == failed
        token = await engine.store.token(owner.token_id)
        assert token is not None
        invalid = token.status.state is TokenState.INVALID
        assert invalid == (failed == {"token_invalid": 1})
        assert engine.counters.notifications_failed == 1


async def test_while_the_job_is_away_notifications_wait_and_newer_ones_supersede_them(
    meeting: Meeting,
) -> None:
    job, way = Job(meeting), meeting.opened()
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q", 1, 1.0))
        await until(lambda: bool(meeting.segments()))
        await engine.receive(received("q", 2, 2.0))
        assert way.waiting == 1
        assert way.oldest_seconds > 0
        assert (await engine.store.accounting()).pending == 1
        async with working(meeting, job):
            accounting = await engine.settled()
    assert (accounting.accepted, accounting.superseded) == (1, 1)
    assert len(set(job.ids())) == 2


async def test_a_job_that_is_away_is_replaced_until_it_is_back(meeting: Meeting) -> None:
    job, provider, way = Job(meeting), RecordingProvider(), meeting.opened(patience=0.2)
    async with running_engine({PROVIDER: provider}, way) as engine:
        await engine.token("a", *(f"a{number}" for number in range(8)))
        await engine.token("b", "b")
        numbers = {f"a{number}": number for number in range(8)} | {"b": 8}
        await engine.receive(*(received(name, name, 1.0 + at) for name, at in numbers.items()))
        assert (await engine.settled()).accepted == 9
        assert way.away
        assert len(provider.sent) == 3
        assert engine.counters.pushes_retried == 0
        [probe] = meeting.segments()
        await engine.receive(
            received("b", "again", 20.0)
        )  # at once: nobody waits for the job's time limit again
        assert (await engine.settled()).accepted == 10
        await until(lambda: meeting.segments() != [probe])  # the folder does not grow
        assert len(meeting.segments()) == 1
        async with working(meeting, job):
            await until(lambda: not way.away)
            await engine.receive(received("b", "later", 30.0))
            assert (await engine.settled()).accepted == 11
    assert len(provider.sent) == 4
    assert [each.taken for each in job.pushes] == [1]
    assert way.pushed_twice == 0


async def test_a_push_by_both_has_one_id_and_is_counted(meeting: Meeting) -> None:
    job, provider, way = Job(meeting), RecordingProvider(), meeting.opened(patience=0.2)
    async with running_engine({PROVIDER: provider}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.segments()))
        late = Job(meeting)
        late.publish = lambda number, lines: late_answers.append(lines)  # type: ignore[method-assign]  # it is slow
        late_answers: list[bytes] = []
        late(meeting.segments(), 0)
        assert (await engine.settled()).accepted == 1
        job.publish(1, late_answers[0])
        await until(lambda: way.pushed_twice == 1)
        assert [each.push_id for each in provider.sent] == late.ids()
        job.publish(2, late_answers[0])  # the same outcome is one repeat
        async with working(meeting, job):
            await until(lambda: not way.away)
        assert way.pushed_twice == 1
        assert (await engine.store.accounting()).accepted == 1


async def test_a_job_that_answers_too_late_does_not_get_everything_back(meeting: Meeting) -> None:
    now = [0.0]
    way = HandOver(meeting.folder, meeting.key, SystemRandomness(), lambda: now[0], patience=5.0)
    job = Job(meeting)
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.segments()))
        now[0] = 6.0
        await until(lambda: way.away)
        old = probes(meeting)
        now[0] = 12.0
        await until(lambda: probes(meeting) != old)
        job.publish(1, encode_returned([returned(each, None, Accepted()) for each in old]))
        await until(lambda: not list((meeting.folder / OUTCOMES).iterdir()))
        assert way.away
        job.publish(2, encode_returned([returned(each, None, Accepted()) for each in probes(meeting)]))
        await until(lambda: not way.away)


def probes(meeting: Meeting) -> list[str]:
    lines = [
        line for name in meeting.segments() for line in (meeting.folder / name).read_bytes().splitlines()
    ]
    numbers = [read_line(line).id for line in lines]
    assert all(map(is_probe, numbers))
    return numbers


async def test_no_more_is_handed_over_than_memory_and_folder_should_hold(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MOST_GIVEN", 2)
    job, way = Job(meeting), meeting.opened()
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        for number in range(5):
            await engine.token(f"t{number}", f"q{number}")
        await engine.receive(*(received(f"q{number}", number) for number in range(5)))
        await until(lambda: way.waiting == 2)
        assert engine.delivery.waiting == 3
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 5


async def test_a_router_that_starts_hands_everything_over_again_and_ignores_earlier_outcomes(
    meeting: Meeting,
) -> None:
    job, store = Job(meeting), NtfMemoryStore()
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened(), store) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.segments()))
        job(meeting.segments(), 0)  # the push was made, but the router is killed before it learns of it
    before = meeting.segments()
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened(), store) as engine:
        assert meeting.segments() == []
        assert list((meeting.folder / OUTCOMES).iterdir()) == []
        job.publish(1, b'{"id":"0-1","outcome":"refused","reason":"other"}\nnot a line\n')
        assert await engine.delivery.recover() == 1
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 1
        assert meeting.segments() > before  # names rise, or the job would not look at it
    assert len(job.ids()) == 2
    assert len(set(job.ids())) == 1


async def test_a_folder_that_cannot_be_written_delays_and_loses_nothing(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, way = Job(meeting), meeting.opened()
    append: Callable[[bytes], None] = way._segments.append
    failures = [OSError(28, "No space left on device")] * 2

    def failing(data: bytes) -> None:
        if failures:
            raise failures.pop()
        append(data)

    monkeypatch.setattr(way._segments, "append", failing)
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine, working(meeting, job):
        await engine.token("a", "q")
        await engine.receive(received("q"))
        assert (await engine.settled()).accepted == 1
    assert not failures


async def test_verification_goes_out_from_the_router_also_when_the_job_is_away(meeting: Meeting) -> None:
    provider = RecordingProvider()
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine:
        owner = await engine.token("a", "q")
        await engine.receive(received("q"))
        engine.delivery.verify(owner)
        await provider.next_push(owner.device_token.token)
        await asyncio.sleep(0)


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    with pytest.raises(ConfigError, match=KEY_FILE):
        read_handover_key(folder)
    key = handover_key(folder)
    assert handover_key(folder) == key == read_handover_key(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == [KEY_FILE]
    (folder / KEY_FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="is not a hand-over key"):
        read_handover_key(folder)


def test_what_is_handed_over_is_for_its_owner_only(meeting: Meeting) -> None:
    meeting.opened()
    assert meeting.folder.stat().st_mode & 0o777 == 0o700
    assert (meeting.folder / OUTCOMES).stat().st_mode & 0o777 == 0o700
