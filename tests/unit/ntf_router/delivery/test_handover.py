"""`delivery_engine: spark`, the router's side: what is handed over, and what the job's outcomes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.delivery_engines import PROVIDER, JobInProcess, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import received
from tocsin.events.event_log import OUTCOMES
from tocsin.ntf_router.delivery import delivery_lane, handover
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind
from tocsin.ntf_router.delivery.outcome_rows import ACCEPTED_WORD, BEGUN_WORD, NOT_SERVED, OutcomeRow
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "handover")


async def test_messages_are_pushed_by_the_job_and_not_by_the_router(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting)
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        await engine.token("a", "q1", "q2")
        await engine.receive(received("q1", 1, 1.0), received("q2", 2, 2.0))
        accounting = await engine.settled()
        assert accounting.accepted == 2
        assert engine.counters.notifications_delivered == 1
        assert engine.delivery.waiting == 0
    assert len(job.ids()) == 1
    assert provider.sent == []


async def test_each_notification_is_a_row_and_is_handed_over_once(meeting: Meeting) -> None:
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine:
        await engine.token("a", "q1", "q2", "q3")
        await engine.receive(received("q1", 1, 1.0), received("q2", 2, 2.0))
        await until(lambda: len(meeting.handed_over()) == 2)
        await engine.receive(received("q3", 3, 3.0))
        await until(lambda: len(meeting.handed_over()) == 3)
        rows = meeting.handed_over()
    assert [row.received_at for row in rows] == [1.0, 2.0, 3.0]
    assert [row.id for row in rows] == [2, 3, 4]  # the first asked whether the job works
    assert len({row.token for row in rows}) == 1
    assert len({row.queue for row in rows}) == len({row.notification for row in rows}) == 3


async def test_more_than_a_push_can_carry_follows_in_another_push(meeting: Meeting) -> None:
    job = JobInProcess(meeting)
    async with (
        running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine,
        working(meeting, job),
    ):
        queues = [f"q{number}" for number in range(8)]
        await engine.token("a", *queues)
        await engine.receive(*(received(name, name, 1.0 + at) for at, name in enumerate(queues)))
        assert (await engine.settled()).accepted == 8
        assert engine.counters.notifications_delivered == 2
    assert [len(answer.ids) for answer in job.answers if answer.outcome == ACCEPTED_WORD] == [6, 2]


@pytest.mark.parametrize("scope", RetryScope)
async def test_what_may_pass_is_pushed_again_with_the_same_id(meeting: Meeting, scope: RetryScope) -> None:
    """By the job itself if only the token is concerned, else after the router handed it over again."""
    later = RetryLater("503", scope)
    job = JobInProcess(meeting, later, later, later)
    async with (
        running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine,
        working(meeting, job),
    ):
        await engine.token("a", "q")
        await engine.receive(received("q"))
        assert (await engine.settled()).accepted == 1
        assert engine.counters.pushes_retried == 3
        await until(lambda: not job.state)
    assert len(job.ids()) == 4
    assert len(set(job.ids())) == 1
    assert len({answer.ids for answer in job.answers}) == (2 if scope is RetryScope.TOKEN else 4)


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
    job, way = JobInProcess(meeting, outcome), meeting.opened()
    async with (
        running_engine({PROVIDER: RecordingProvider()}, way) as engine,
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
        await until(lambda: not way.holds(owner.token_id))


async def test_all_rows_of_an_invalid_token_are_forgotten(meeting: Meeting) -> None:
    job = JobInProcess(meeting, TokenInvalid(InvalidReason.UNREGISTERED))
    way = meeting.opened()
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine, working(meeting, job):
        queues = [f"q{number}" for number in range(8)]
        owner = await engine.token("a", *queues)
        await engine.receive(*(received(name, name, 1.0 + at) for at, name in enumerate(queues)))
        assert (await engine.settled()).failed == {"token_invalid": 8}
        await until(lambda: not way.holds(owner.token_id))
        assert way.waiting == 0


async def test_what_was_accepted_before_its_token_became_invalid_stays_accepted(meeting: Meeting) -> None:
    """The job answers both in one batch, so the router learns of both at once."""
    job = JobInProcess(meeting, Accepted(), TokenInvalid(InvalidReason.UNREGISTERED))
    way = meeting.opened()
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine, working(meeting, job):
        queues = [f"q{number}" for number in range(8)]
        await engine.token("a", *queues)
        await engine.receive(*(received(name, name, 1.0 + at) for at, name in enumerate(queues)))
        accounting = await engine.settled()
    assert (accounting.accepted, accounting.failed) == (6, {"token_invalid": 2})


async def test_while_the_job_cannot_reach_the_provider_few_tokens_are_handed_over_at_a_time(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_lane, "TRIAL", 2)
    tokens = 100
    job = JobInProcess(meeting, *[RetryLater("connection", RetryScope.PROVIDER)] * 150)
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened()) as engine:
        for number in range(tokens):
            await engine.token(f"t{number}", f"q{number}")
        await engine.receive(*(received(f"q{number}", number) for number in range(tokens)))
        async with working(meeting, job):
            # How many tokens the first batches have depends on how soon the first failure comes back.
            await until(lambda: len(job.sizes) > 5 and max(job.sizes[-4:]) <= 4)
            assert job.state == b""
            job.provider.answers.clear()
            assert (await engine.settled()).accepted == tokens


async def test_while_the_job_is_late_notifications_wait_and_newer_ones_supersede_them(
    meeting: Meeting,
) -> None:
    job, way = JobInProcess(meeting), meeting.opened()
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q", 1, 1.0))
        await until(lambda: len(meeting.handed_over()) == 1)
        await engine.receive(received("q", 2, 2.0))
        await until(lambda: len(meeting.handed_over()) == 2)
        assert way.waiting == 2
        assert way.oldest_seconds > 0
        assert (await engine.store.accounting()).pending == 1
        async with working(meeting, job):
            accounting = await engine.settled()
            await until(lambda: way.waiting == 0)
    assert (accounting.accepted, accounting.superseded) == (1, 1)
    assert len(job.ids()) == 1


async def test_a_job_that_is_away_is_replaced_until_it_is_back(meeting: Meeting) -> None:
    job, provider, way = JobInProcess(meeting), RecordingProvider(), meeting.opened(patience=0.2)
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
        await until(lambda: meeting.segments() not in ([], [probe]))  # the folder does not grow
        assert len(meeting.segments()) == 1
        async with working(meeting, job):
            await until(lambda: not way.away)
            await engine.receive(received("b", "later", 30.0))
            assert (await engine.settled()).accepted == 11
    assert len(provider.sent) == 4
    assert len(job.ids()) == 1
    assert way.pushed_twice == 0


async def test_until_the_job_works_the_router_pushes_by_itself(meeting: Meeting) -> None:
    job, provider, way = JobInProcess(meeting), RecordingProvider(), meeting.opened(job_works=False)
    async with running_engine({PROVIDER: provider}, way) as engine:
        owner = await engine.token("a", "q")
        engine.delivery.verify(owner)
        await engine.receive(received("q", 1, 1.0))
        assert (await engine.settled()).accepted == 1
        await until(lambda: len(provider.sent) == 2)
        assert meeting.handed_over() == []
        async with working(meeting, job):
            await until(lambda: not way.away)
            await engine.receive(received("q", 2, 2.0))
            assert (await engine.settled()).accepted == 2
    assert len(job.ids()) == 1


async def test_a_push_by_both_has_one_id_and_is_counted(meeting: Meeting) -> None:
    provider, way = RecordingProvider(), meeting.opened(patience=0.2)
    async with running_engine({PROVIDER: provider}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.handed_over()))
        late = JobInProcess(meeting)
        late.publish = lambda answers: late_answers.extend(answers)  # type: ignore[method-assign]  # it is slow
        late_answers: list[OutcomeRow] = []
        await asyncio.to_thread(late.batch, meeting.segments())
        assert (await engine.settled()).accepted == 1
        meeting.publish(late_answers, 901)
        await until(lambda: way.pushed_twice == 1)
        assert [each.push_id for each in provider.sent] == late.ids()
        meeting.publish(late_answers, 902)  # the same outcome is one repeat
        async with working(meeting, JobInProcess(meeting)):
            await until(lambda: not way.away)
        assert way.pushed_twice == 1
        assert (await engine.store.accounting()).accepted == 1


async def test_what_waits_with_the_job_is_forgotten_there_when_the_router_took_it_back(
    meeting: Meeting,
) -> None:
    """The state of a job that comes back has tokens in back-off, which the router pushed meanwhile."""
    slow = RetryLater("429", RetryScope.TOKEN, after=20.0)
    job, provider, way = JobInProcess(meeting, slow), RecordingProvider(), meeting.opened(patience=0.2)
    async with running_engine({PROVIDER: provider}, way, retry_maximum=60.0) as engine:
        await engine.token("a", "a")
        await engine.token("b", "b")
        await engine.receive(received("a"))
        async with working(meeting, job):
            await until(lambda: bool(job.state))
        await engine.receive(received("b"))  # nobody answers
        assert (await engine.settled()).accepted == 2
        assert len(provider.sent) == 2
        async with working(meeting, job):
            await until(lambda: not way.away)
        assert job.state == b""
    assert len(job.ids()) == 1


async def test_a_push_that_rests_with_the_job_does_not_mean_that_the_job_is_away(meeting: Meeting) -> None:
    now = [1_700_000_000.0]
    way = meeting.opened(5.0, lambda: now[0])
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.handed_over()))
        [row] = meeting.handed_over()
        rests = OutcomeRow(row.epoch, (row.id,), "retry", "429", scope="token", due_in=20.0)
        meeting.publish([rests], 1)
        await until(lambda: engine.counters.pushes_retried == 1)
        now[0] += 19.0
        way.watch()
        assert (way.waiting, way.oldest_seconds, way.away) == (1, 0.0, False)
        meeting.publish([rests], 2)
        await until(lambda: engine.counters.pushes_retried == 2)
        now[0] += 19.0
        way.watch()
        assert (way.waiting, way.oldest_seconds, way.away) == (1, 0.0, False), "it rests again, from then on"
        now[0] += 3.0
        way.watch()
        assert (way.oldest_seconds, way.away) == (2.0, False)
        now[0] += 5.0
        way.watch()
        assert way.away
        assert (await engine.settled()).accepted == 1


async def test_a_job_that_answers_too_late_does_not_get_everything_back(meeting: Meeting) -> None:
    now = [1_700_000_000.0]
    way = meeting.opened(5.0, lambda: now[0])
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.handed_over()))
        now[0] += 6.0
        await until(lambda: way.away and len(meeting.rows()) == 1)
        [old] = meeting.rows()
        now[0] += 6.0
        await until(lambda: meeting.rows() not in ([], [old]))
        meeting.publish([begun(old)], 1)
        await until(lambda: not list((meeting.folder / OUTCOMES).iterdir()))
        assert way.away
        [new] = meeting.rows()
        meeting.publish([begun(new)], 2)
        await until(lambda: not way.away)


async def test_what_is_being_stored_is_not_handed_over_again_when_the_rest_of_its_token_is(
    meeting: Meeting,
) -> None:
    way = meeting.opened()
    store = NtfMemoryStore()
    async with running_engine({PROVIDER: RecordingProvider()}, way, store) as engine:
        owner = await engine.token("a", "q1", "q2")
        await engine.receive(received("q1", 1, 1.0), received("q2", 2, 2.0))
        await until(lambda: len(meeting.handed_over()) == 2)
        first, second = meeting.handed_over()
        stored = asyncio.Event()
        settle = store.settle

        async def slowly(*arguments: Any) -> None:
            await stored.wait()
            await settle(*arguments)

        store.settle = slowly  # type: ignore[assignment,method-assign]  # the database is slow
        later = {"scope": "token", "after": 0.02, "attempt": 1}
        meeting.publish(
            [
                OutcomeRow(first.epoch, (first.id,), "accepted"),
                OutcomeRow(second.epoch, (second.id,), "retry", "429", **later),  # type: ignore[arg-type]  # as named
            ],
            901,
        )
        await until(lambda: len(meeting.handed_over()) == 3)
        assert meeting.handed_over()[2].notification == second.notification
        assert way.holds(owner.token_id)
        stored.set()
        async with working(meeting, JobInProcess(meeting)):
            assert (await engine.settled()).accepted == 2


def begun(row: HandedRow) -> OutcomeRow:
    assert row.kind == RowKind.BEGIN
    return OutcomeRow(row.epoch, (row.id,), BEGUN_WORD)


async def test_no_more_is_handed_over_than_memory_and_folder_should_hold(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MOST_GIVEN", 2)
    job, way = JobInProcess(meeting), meeting.opened()
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
    job, store = JobInProcess(meeting), NtfMemoryStore()
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened(), store) as engine:
        await engine.token("a", "q")
        await engine.receive(received("q"))
        await until(lambda: bool(meeting.handed_over()))
        before = meeting.segments()
        early = [OutcomeRow(row.epoch, (row.id,), "refused", "other") for row in meeting.handed_over()]
    # The push was made, but the router was killed before it learned of it.
    await asyncio.to_thread(job.batch, before)
    async with running_engine({PROVIDER: RecordingProvider()}, meeting.opened(), store) as engine:
        assert meeting.handed_over() == []
        assert list((meeting.folder / OUTCOMES).iterdir()) == []
        meeting.publish(early, 901)
        (meeting.folder / OUTCOMES / f"{OUTCOMES}-902.jsonl").write_text("not a line\n")
        assert await engine.delivery.recover() == 1
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 1
        assert meeting.segments() > before  # names rise, or the job would not look at it
    assert len(job.ids()) == 2
    assert len(set(job.ids())) == 1


async def test_a_folder_that_cannot_be_written_delays_and_loses_nothing(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, way = JobInProcess(meeting), meeting.opened()
    publish: Callable[[Sequence[bytes]], None] = way._channel.publish
    failures = [OSError(28, "No space left on device")] * 2

    def failing(lines: Sequence[bytes]) -> None:
        if failures:
            raise failures.pop()
        publish(lines)

    monkeypatch.setattr(way._channel, "publish", failing)
    async with running_engine({PROVIDER: RecordingProvider()}, way) as engine, working(meeting, job):
        await engine.token("a", "q1", "q2")
        await engine.receive(received("q1", 1), received("q2", 2))
        assert (await engine.settled()).accepted == 2
    assert not failures
    assert engine.counters.pushes_retried == 0


async def test_the_router_pushes_what_the_job_never_pushes_in_time(meeting: Meeting) -> None:
    """And the job gets the token's next notification again."""
    provider, job = RecordingProvider(), JobInProcess(meeting)
    job.provider.hold()
    job.patience = 0.01
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        owner = await engine.token("a", "q")
        await engine.receive(received("q", 1))
        assert (await engine.settled()).accepted == 1
        engine.delivery.verify(owner)
        await until(lambda: engine.counters.notifications_verification_delivered == 1)
        by_job = len(job.provider.sent)
        assert by_job > 2
        assert len(provider.sent) == 2
        job.provider.release()
        await engine.receive(received("q", 2))
        assert (await engine.settled()).accepted == 2
    assert len(provider.sent) == 2
    assert len(job.provider.sent) == by_job + 1
    assert job.state == b""


async def test_the_router_pushes_what_the_job_does_not_serve(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting, *[NOT_SERVED] * 20)
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        await engine.token("a", "q")
        await engine.receive(received("q", 1))
        assert (await engine.settled()).accepted == 1
    assert len(provider.sent) == 1
    assert len(job.provider.sent) < 20


async def test_verification_and_reminders_take_the_same_way(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting, RetryLater("503", RetryScope.PROVIDER))
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        owner = await engine.token("a", "q")
        engine.delivery.verify(owner)
        await until(lambda: engine.counters.notifications_verification_delivered == 1)
        engine.delivery.check_messages(owner)
        await until(lambda: engine.counters.notifications_periodic_delivered == 1)
        assert engine.counters.pushes_retried == 1
    assert provider.sent == []
    assert len(job.ids()) == 3
    assert len(set(job.ids())) == 2
    kinds = {row.kind for row in meeting.handed_over()}
    assert kinds == {RowKind.VERIFICATION, RowKind.PERIODIC}


async def test_verification_goes_out_from_the_router_when_the_job_is_away(meeting: Meeting) -> None:
    provider = RecordingProvider()
    async with running_engine({PROVIDER: provider}, meeting.opened(patience=0.2)) as engine:
        owner = await engine.token("a")
        engine.delivery.verify(owner)
        await provider.next_push(owner.device_token.token)
        await until(lambda: engine.counters.notifications_verification_delivered == 1)


def test_what_is_handed_over_is_for_its_owner_only(meeting: Meeting) -> None:
    meeting.opened()
    assert meeting.folder.stat().st_mode & 0o777 == 0o700
    assert (meeting.folder / OUTCOMES).stat().st_mode & 0o777 == 0o700
