"""Which engine pushes for a token: the share, the operator's choice, and a job that is away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import PROVIDER, JobInProcess, Meeting, running_engine, working
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import received
from tocsin.errors import StoreError, StoreFull
from tocsin.ntf_router.delivery import token_engines
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.delivery.token_engines import TokenEngines
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings

INLINE, SPARK, BOTH = DeliveryEngine.INLINE, DeliveryEngine.SPARK, DeliveryEngine.BOTH
TOKENS = [os.urandom(24) for _ in range(4000)]


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "handover")


@pytest.fixture
def way(meeting: Meeting) -> HandOver:
    return meeting.opened()


def engines(way: HandOver | None, share: float = 0.5, file: Path | None = None) -> TokenEngines:
    return TokenEngines(DeliverySettings(engine=BOTH, share=share), way, file)


def of_spark(chosen: TokenEngines) -> set[bytes]:
    return {token_id for token_id in TOKENS if chosen.engine_of(token_id) is SPARK}


def test_a_share_of_the_tokens_goes_to_the_job_and_grows_with_the_share(way: HandOver) -> None:
    shares = [of_spark(engines(way, share)) for share in (0.0, 0.25, 0.5, 1.0)]
    assert not shares[0]
    assert 800 < len(shares[1]) < 1200
    assert 1800 < len(shares[2]) < 2200
    assert shares[1] < shares[2] < shares[3] == set(TOKENS)
    assert of_spark(engines(way, 0.25)) == shares[1]


def test_without_a_job_everything_is_pushed_here_and_nothing_can_be_chosen() -> None:
    alone = TokenEngines(DeliverySettings(), None)
    assert of_spark(alone) == set()
    assert alone.job_of(TOKENS[0]) is None
    with pytest.raises(StoreError, match="delivery_engine is inline"):
        alone.choose(TOKENS[0], SPARK)


def test_the_operator_chooses_for_single_tokens_until_the_share_decides_again(way: HandOver) -> None:
    chosen = engines(way, 0.0)
    assert chosen.choose(TOKENS[0], SPARK) is SPARK
    assert of_spark(chosen) == {TOKENS[0]}
    assert chosen.job_of(TOKENS[0]) is way
    assert chosen.job_of(TOKENS[1]) is None
    assert chosen.choose(TOKENS[0], None) is INLINE
    assert of_spark(chosen) == set()
    every = TokenEngines(DeliverySettings(engine=SPARK), way)
    every.choose(TOKENS[0], INLINE)
    assert of_spark(every) == set(TOKENS[1:])


def test_choices_are_kept_for_their_owner_only_and_without_ids(way: HandOver, tmp_path: Path) -> None:
    file = tmp_path / "engines.json"
    engines(way, 0.0, file).choose(TOKENS[0], SPARK)
    assert of_spark(engines(way, 0.0, file)) == {TOKENS[0]}
    assert file.stat().st_mode & 0o777 == 0o600
    assert TOKENS[0].hex() not in file.read_text()


def test_a_damaged_file_of_choices_is_reported_and_ignored(
    way: HandOver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "engines.json"
    file.write_text('{"00": "flink"}')
    assert of_spark(engines(way, 0.0, file)) == set()
    assert "cannot be read" in caplog.text


def test_a_choice_that_cannot_be_kept_is_not_made(
    way: HandOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = engines(way, 0.0, tmp_path / "no-folder" / "engines.json")
    with pytest.raises(StoreError, match="cannot write"):
        chosen.choose(TOKENS[0], SPARK)
    monkeypatch.setattr(token_engines, "MOST_CHOSEN", 1)
    full = engines(way, 0.0)
    full.choose(TOKENS[0], SPARK)
    with pytest.raises(StoreFull, match="delivery_share"):
        full.choose(TOKENS[1], SPARK)
    assert of_spark(full) == {TOKENS[0]}


async def test_each_engine_pushes_for_its_tokens_and_a_token_can_be_moved(meeting: Meeting) -> None:
    provider, job = RecordingProvider(), JobInProcess(meeting)
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine, working(meeting, job):
        ours, theirs = [await engine.token(name, f"q-{name}") for name in ("ours", "theirs")]
        engine.delivery.engines.choose(ours.token_id, INLINE)
        await engine.receive(received("q-ours", 1, 1.0), received("q-theirs", 2, 2.0))
        assert (await engine.settled()).accepted == 2
        assert [push.device_token for push in provider.sent] == [ours.device_token.token]
        assert len(job.ids()) == 1
        engine.delivery.engines.choose(ours.token_id, SPARK)
        engine.delivery.engines.choose(theirs.token_id, INLINE)
        await engine.receive(received("q-ours", 3, 3.0), received("q-theirs", 4, 4.0))
        assert (await engine.settled()).accepted == 4
        assert provider.sent[-1].device_token == theirs.device_token.token
        assert (len(provider.sent), len(job.ids())) == (2, 2)


async def test_a_full_job_does_not_hold_up_the_tokens_of_this_router(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.ntf_router.delivery.handover.MOST_GIVEN", 1)
    provider = RecordingProvider()
    async with running_engine({PROVIDER: provider}, meeting.opened()) as engine:
        for name in ("t1", "t2", "t3"):
            await engine.token(name, f"q-{name}")
        ours = await engine.token("ours", "q-ours")
        engine.delivery.engines.choose(ours.token_id, INLINE)
        await engine.receive(*(received(f"q-{name}", name) for name in ("t1", "t2", "t3", "ours")))
        await provider.next_push(ours.device_token.token)
        assert engine.delivery.waiting == 2


async def test_while_the_job_is_away_this_router_pushes_for_all_and_then_each_for_its_own(
    meeting: Meeting,
) -> None:
    provider, job, way = RecordingProvider(), JobInProcess(meeting), meeting.opened(patience=0.2)
    async with running_engine({PROVIDER: provider}, way) as engine:
        ours, theirs = [await engine.token(name, f"q-{name}") for name in ("ours", "theirs")]
        engine.delivery.engines.choose(ours.token_id, INLINE)
        await engine.receive(received("q-ours", 1, 1.0), received("q-theirs", 2, 2.0))
        assert (await engine.settled()).accepted == 2
        assert {push.device_token for push in provider.sent} == {
            ours.device_token.token,
            theirs.device_token.token,
        }
        async with working(meeting, job):
            await until(lambda: not way.away)
            await engine.receive(received("q-ours", 3, 3.0), received("q-theirs", 4, 4.0))
            assert (await engine.settled()).accepted == 4
    assert len(provider.sent) == 3
    assert len(job.ids()) == 1


async def test_a_token_that_is_moved_waits_for_what_the_job_has(meeting: Meeting) -> None:
    """Its notifications are not pushed by both, and stay in order."""
    provider, job, way = RecordingProvider(), JobInProcess(meeting), meeting.opened()
    async with running_engine({PROVIDER: provider}, way) as engine:
        owner = await engine.token("a", "q1", "q2")
        await engine.receive(received("q1", 1, 1.0))
        await until(lambda: way.waiting == 1)
        engine.delivery.engines.choose(owner.token_id, INLINE)
        await engine.receive(received("q2", 2, 2.0))
        await provider.nothing(owner.device_token.token)
        async with working(meeting, job):
            assert (await engine.settled()).accepted == 2
    assert (len(job.ids()), len(provider.sent)) == (1, 1)
