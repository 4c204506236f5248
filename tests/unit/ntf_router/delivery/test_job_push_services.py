"""Web Push by the `deliver` job: to the services that the operator named, and only while they answer in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import PROVIDER, Engine, JobInProcess, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import ROUTER, received, token
from tocsin.crypto.web_push import WebPushSecret
from tocsin.ntf_router.delivery import token_engines
from tocsin.ntf_router.delivery.outcome_rows import NOT_SERVED
from tocsin.ntf_router.delivery.token_engines import SLOW_SECONDS, TokenEngines
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.ntf_router.store.records import Recorded
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.provider import Provider

WEBPUSH = PushProvider.WEBPUSH
RECEIVER = WebPushSecret(bytes(range(48))).receiver
NAMED = "push.test", 443
OTHERS = [("push.test", 8443), ("other.test", 443), ("a.push.test", 443)]


def device(
    host: str, port: int = 443, path: str = "/", form: WebPushForm = WebPushForm.COMPACT
) -> DeviceToken:
    return DeviceToken(WEBPUSH, WebPushAddress(RECEIVER, host, port, path, form).token())


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "handover")


@asynccontextmanager
async def engine_with(meeting: Meeting, provider: RecordingProvider) -> AsyncIterator[Engine]:
    services = NAMED[0], "second.test"
    async with running_engine({WEBPUSH: provider}, meeting.opened(), push_services=services) as engine:
        yield engine


@pytest.mark.parametrize("form", WebPushForm)
async def test_the_job_pushes_to_named_services_and_the_router_to_all_others(
    meeting: Meeting, form: WebPushForm
) -> None:
    """A device chooses the port too, so another port is another service."""
    provider, job = RecordingProvider(), JobInProcess(meeting)
    async with engine_with(meeting, provider) as engine, working(meeting, job):
        places = [NAMED, *OTHERS]
        owners = [
            await engine.token(f"t{number}", f"q{number}", device=device(*place, form=form))
            for number, place in enumerate(places)
        ]
        await engine.receive(*(received(f"q{number}", number) for number in range(len(places))))
        assert (await engine.settled()).accepted == len(places)
        for owner in owners:
            engine.delivery.verify(owner)
        await until(lambda: engine.counters.notifications_verification_delivered == len(places))
    tokens = [each.device_token.token for each in owners]
    assert [each.device_token for each in job.provider.sent] == tokens[:1] * 2
    assert sorted(each.device_token for each in provider.sent) == sorted(tokens[1:] * 2)


async def test_a_full_job_holds_up_only_the_services_that_were_named(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.ntf_router.delivery.handover.MOST_GIVEN", 1)
    provider, job = RecordingProvider(), JobInProcess(meeting)
    async with engine_with(meeting, provider) as engine:
        for number in range(3):
            await engine.token(f"t{number}", f"q{number}", device=device(*NAMED, path=f"/{number}"))
        other = await engine.token("other", "other", device=device(*OTHERS[0]))
        await engine.receive(*(received(each) for each in ("q0", "q1", "q2", "other")))
        await provider.next_push(other.device_token.token)
        await until(lambda: len(meeting.handed_over()) == 1)
        assert engine.delivery.waiting == 2
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 4
    assert (len(provider.sent), len(job.provider.sent)) == (1, 3)


async def test_a_service_that_does_not_answer_in_time_is_the_routers_affair(meeting: Meeting) -> None:
    """The other service that was named is not concerned."""
    provider, job = RecordingProvider(), JobInProcess(meeting)
    job.provider.hold()
    job.patience = 0.01
    async with engine_with(meeting, provider) as engine, working(meeting, job):
        for number, host in enumerate(("push.test", "push.test", "second.test")):
            await engine.token(f"t{number}", f"q{number}", device=device(host, path=f"/{number}"))
        await engine.receive(received("q0"))
        assert (await engine.settled()).accepted == 1
        assert engine.counters.pushes_retried == 1
        job.provider.release()
        await engine.receive(received("q1"), received("q2"))
        assert (await engine.settled()).accepted == 3
    paths = [[each.device_token.decode()[-2:] for each in some.sent] for some in (job.provider, provider)]
    assert paths == [["/0", "/2"], ["/0", "/1"]]
    assert job.provider.sent[0].push_id == provider.sent[0].push_id
    assert job.state == b""


async def test_a_verification_that_is_not_answered_in_time_is_pushed_by_the_router(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting)
    job.provider.hold()
    job.patience = 0.01
    async with engine_with(meeting, provider) as engine, working(meeting, job):
        owner = await engine.token("t", device=device(*NAMED))
        engine.delivery.verify(owner)
        await until(lambda: engine.counters.notifications_verification_delivered == 1)
    assert [len(each.sent) for each in (job.provider, provider)] == [1, 1]


async def test_what_the_job_does_not_serve_is_pushed_by_the_router(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting, NOT_SERVED, NOT_SERVED)
    async with engine_with(meeting, provider) as engine, working(meeting, job):
        await engine.token("t", "q", device=device(*NAMED))
        await engine.receive(received("q"))
        assert (await engine.settled()).accepted == 1
    assert len(provider.sent) == 1


def test_a_service_that_was_slow_gets_another_chance_later(meeting: Meeting) -> None:
    now = 10.0
    job = meeting.opened()
    settings = DeliverySettings(engine=DeliveryEngine.SPARK, push_services=(NAMED[0],))
    engines = TokenEngines(settings, job, now=lambda: now)
    named, other = token("a", device(*NAMED)), token("b", device(*OTHERS[0]))
    assert (engines.job_for(named), engines.job_for(other)) == (job, None)
    engines.did_not_push(named)
    engines.did_not_push(other)
    assert engines.job_for(named) is None
    now += SLOW_SECONDS
    assert (engines.job_for(named), engines.job_for(other)) == (job, None)
    assert set(engines._slow_until) == {NAMED[0]}  # devices cannot fill it
    broken = token("c", DeviceToken(WEBPUSH, b"no address"))
    assert engines.job_for(broken) is None
    apns = token("d")
    engines.did_not_push(apns)
    assert engines.job_for(apns) is job
    assert token_engines.SLOW_SECONDS > 60


async def test_a_device_that_changes_to_web_push_waits_for_the_job_and_no_longer(meeting: Meeting) -> None:
    """The job has a notification for its old token. What came since is pushed when the job has answered."""
    provider, job = RecordingProvider(), JobInProcess(meeting)
    both: dict[PushProvider, Provider] = {PROVIDER: provider, WEBPUSH: provider}
    way = meeting.opened()
    async with running_engine(both, way) as engine:
        owner = await engine.token("t", "old", "new")
        await engine.receive(received("old", 1, 1.0))
        await until(lambda: len(meeting.handed_over()) == 1)
        moved = device(*OTHERS[0])
        await engine.store.replace_token(owner.token_id, moved, b"code", 1_700_000_001)
        await engine.store.activate_token(owner.token_id, b"code")
        [result] = await engine.store.add_notifications(ROUTER, [received("new", 2, 2.0)])
        assert isinstance(result, Recorded)
        engine.delivery.notify(owner.token_id, WEBPUSH)
        await until(lambda: engine.delivery.waiting == 0)
        await provider.nothing(moved.token)
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 2
    assert [each.device_token for each in (*job.provider.sent, *provider.sent)] == [
        owner.device_token.token,
        moved.token,
    ]
