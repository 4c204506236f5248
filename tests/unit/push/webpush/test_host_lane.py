"""What is remembered of push services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from tests.doubles.smp_harness import until
from tests.doubles.web_push_service import NAMES, Answer, Held, WebPushPhone, WebPushService
from tests.unit.push.webpush.stage import WebPushStage, request_to
from tocsin.push.provider import Accepted, PushOutcome, RetryLater, RetryScope
from tocsin.push.webpush.host_lane import (
    LONGEST_PAUSE_SECONDS,
    NEWCOMER_RATE,
    NEWCOMERS_AT_ONCE,
    QUEUE_LIMIT,
    Reputations,
)
from tocsin.transport.resolver import Address

HERE = "https://push.test"


def test_a_service_is_proven_once_it_has_accepted_a_push() -> None:
    known = Reputations()
    known.reached(HERE, accepted=False)
    assert not known.is_proven(HERE)
    known.reached(HERE, accepted=True)
    assert known.is_proven(HERE)
    known.unreachable(HERE, 0.0)
    assert not known.is_proven(HERE)


def test_pauses_of_a_service_that_cannot_be_reached_grow_up_to_a_limit() -> None:
    known = Reputations()
    assert known.pause(HERE, 0.0) is None
    assert [known.unreachable(HERE, now) for now in (0.0, 2.0, 6.0)] == [2.0, 4.0, 8.0]
    assert known.pause(HERE, 7.0) == 7.0
    assert known.pause(HERE, 14.0) is None
    for number in range(1, 100):
        known.unreachable(HERE, number * 1000.0)
    assert known.pause(HERE, 99_000.0) == LONGEST_PAUSE_SECONDS


def test_attempts_that_fail_together_are_one_failure() -> None:
    known = Reputations()
    assert [known.unreachable(HERE, now) for now in (0.0, 0.0, 0.5, 2.0)] == [2.0, 2.0, 1.5, 4.0]


def test_an_answer_ends_the_pause() -> None:
    known = Reputations()
    known.unreachable(HERE, 0.0)
    known.reached(HERE, accepted=False)
    assert known.pause(HERE, 0.0) is None
    assert known.unreachable(HERE, 0.0) == 2.0


def test_only_so_many_services_are_remembered() -> None:
    known = Reputations(limit=2)
    for now, name in enumerate("abac"):
        known.reached(name, accepted=True)
        known.unreachable(f"{name}!", now * 10.0)
    assert [known.is_proven(name) for name in "abc"] == [True, False, True]
    assert [known.pause(f"{name}!", 20.0) is not None for name in "abc"] == [True, False, True]


StageWith = Callable[..., AbstractAsyncContextManager[WebPushStage]]
SLOW, GOOD = NAMES[0], NAMES[1]
TOKEN = RetryScope.TOKEN


async def test_a_slow_host_delays_only_its_own_pushes(stage_with: StageWith) -> None:
    async with stage_with(connections=2, timeout=15.0) as stage:
        gate = asyncio.Event()
        stage.service.by_host[SLOW] = Held(gate)
        slow = [stage.send(request_to(stage.phone(SLOW))) for _ in range(10)]
        for _ in range(20):
            assert await stage.push(stage.phone(GOOD)) == Accepted()
        assert not any(each.done() for each in slow)
        gate.set()
        assert {await each for each in slow} == {Accepted()}


async def test_a_full_queue_sends_pushes_away_each_with_a_later_turn(stage_with: StageWith) -> None:
    async with stage_with(connections=1, rate=1000) as stage:
        phone = stage.phone(SLOW)
        assert await stage.push(phone) == Accepted()  # from now on it may get many
        gate = asyncio.Event()
        stage.service.by_host[SLOW] = Held(gate)
        loop = asyncio.get_running_loop()
        now = loop.time()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: now)  # however long the submissions take
            sent = [stage.send(request_to(phone)) for _ in range(QUEUE_LIMIT + 3)]
        await until(lambda: sum(each.done() for each in sent) == 3)
        turned_away = [await each for each in sent[-3:]]
        assert all(isinstance(each, RetryLater) and each.reason == "busy" for each in turned_away)
        afters = [after_of(each) for each in turned_away]
        assert afters == sorted(set(afters))
        assert min(afters) >= 1.0
        assert stage.provider.room > 0
        assert await stage.push(stage.phone(GOOD)) == Accepted()
        gate.set()


def after_of(outcome: PushOutcome) -> float:
    assert isinstance(outcome, RetryLater)
    assert outcome.scope is TOKEN
    assert outcome.after is not None
    return outcome.after


async def test_pushes_to_one_host_come_at_a_bounded_rate(stage_with: StageWith) -> None:
    """Those of a second at once: whoever registers many tokens at a host does not make us flood it."""
    async with stage_with(rate=5) as stage:
        outcomes = await asyncio.gather(*(stage.push(stage.phone(GOOD)) for _ in range(20)))
        accepted = [each for each in outcomes if each == Accepted()]
        assert 5 <= len(accepted) <= 8
        assert len(stage.service.received) == len(accepted)
        assert await stage.push(stage.phone(SLOW)) == Accepted()


async def test_a_host_that_has_accepted_nothing_gets_fewer_pushes(stage_with: StageWith) -> None:
    """It may be one that never asked for them."""
    async with stage_with(rate=1000) as stage:
        stage.service.by_host[SLOW] = Answer(404)
        await asyncio.gather(*(stage.push(stage.phone(SLOW)) for _ in range(100)))
        assert len(stage.service.received) <= NEWCOMER_RATE + 5


async def test_a_host_that_cannot_be_reached_is_left_alone_for_a_while(
    stage_with: StageWith, service: WebPushService
) -> None:
    asked: list[str] = []

    async def counted(host: str, port: int) -> Sequence[Address]:
        asked.append(host)
        return await service.find(host, port)

    async with stage_with(find=counted) as stage:
        dead = WebPushPhone(service, "evil.test")  # its certificate is for other names
        sent = [stage.send(request_to(dead)) for _ in range(10)]
        afters = [after_of(await each) for each in sent]
        assert 0.0 < min(afters) <= max(afters) <= 2.0
        dialled = len(asked)
        assert 0.0 < after_of(await stage.push(dead)) <= 2.0
        assert len(asked) == dialled <= 4
        assert await stage.push(stage.phone(GOOD)) == Accepted()


async def test_an_idle_host_makes_room_for_another(stage_with: StageWith) -> None:
    async with stage_with(hosts=2) as stage:
        for name in NAMES * 2:
            assert await stage.push(stage.phone(name)) == Accepted()
            await until(lambda: stage.provider.in_flight == 0)
            assert stage.provider.hosts <= 2


async def test_unproven_hosts_leave_half_of_the_room_to_proven_ones(stage_with: StageWith) -> None:
    async with stage_with(hosts=2) as stage:
        assert await stage.push(stage.phone(GOOD)) == Accepted()  # from now on it is proven
        gate = asyncio.Event()
        for name in (SLOW, NAMES[2], NAMES[3]):
            stage.service.by_host[name] = Held(gate)
        slow = stage.send(request_to(stage.phone(SLOW)))
        await until(lambda: len(stage.service.received) == 2)
        for name in NAMES[2:]:
            assert await stage.push(stage.phone(name)) == RetryLater("busy", TOKEN, 1.0)
        for _ in range(3):
            assert await stage.push(stage.phone(GOOD)) == Accepted()
        assert not slow.done()
        gate.set()
        assert await slow == Accepted()


async def test_a_host_that_answers_but_accepts_nothing_stays_unproven(stage_with: StageWith) -> None:
    async with stage_with(hosts=2) as stage:
        for name in NAMES[1:]:
            stage.service.by_host[name] = Answer(503)
            assert await stage.push(stage.phone(name)) == RetryLater("503", TOKEN)
            await until(lambda: stage.provider.in_flight == 0)
        assert stage.provider.hosts == 1


async def test_unproven_hosts_share_a_few_turns_to_be_connected_to(
    stage_with: StageWith, service: WebPushService
) -> None:
    """Names that are slow to resolve would otherwise take all threads for it."""
    gate, asked = asyncio.Event(), list[str]()

    async def slow(host: str, port: int) -> Sequence[Address]:
        if host != GOOD:
            asked.append(host)
            await gate.wait()
        return await service.find(host, port)

    async with stage_with(find=slow, hosts=100) as stage:
        service.by_host[GOOD] = Answer(201, {"Connection": "close"})
        assert await stage.push(stage.phone(GOOD)) == Accepted()
        sent = [stage.send(request_to(WebPushPhone(service, f"slow{number}.test"))) for number in range(40)]
        await until(lambda: len(asked) == NEWCOMERS_AT_ONCE)
        assert await stage.push(stage.phone(GOOD)) == Accepted()
        assert len(asked) == NEWCOMERS_AT_ONCE
        gate.set()
        assert {type(each) for each in await asyncio.gather(*sent)} == {RetryLater}
        assert len(asked) == 40
