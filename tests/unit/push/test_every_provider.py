"""What every push provider does, whatever it is called and however it is spoken to: one suite over all of them."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.delivery_engines import running_engine
from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import filled, received
from tests.unit.push.every_provider import PLACES, Place, Trouble, place_of
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

OUTCOMES: Final[dict[Trouble, Callable[[PushOutcome], bool]]] = {
    Trouble.INVALID_TOKEN: lambda outcome: isinstance(outcome, TokenInvalid),
    Trouble.RATE_LIMITED: lambda outcome: isinstance(outcome, RetryLater) and outcome.after == 7.0,
    Trouble.OVERLOADED: lambda outcome: isinstance(outcome, RetryLater) and outcome.after == 3.0,
    Trouble.REDIRECT: lambda outcome: isinstance(outcome, PushRefused),
    Trouble.HUGE_ANSWER: lambda outcome: isinstance(outcome, RetryLater),
    Trouble.GARBAGE: lambda outcome: isinstance(outcome, RetryLater),
    Trouble.LOST: lambda outcome: isinstance(outcome, RetryLater) and outcome.reason == "connection",
    Trouble.STALL: lambda outcome: outcome == RetryLater("timeout", RetryScope.TOKEN),
    Trouble.GOAWAY: lambda outcome: outcome == Accepted(),
}
SHORT: Final = 2.0
"""Seconds until a push without an answer is given up, where a test waits for that."""
HOUR: Final = 3600
WINDOW: Final = 600
"""Seconds of the hour after which memory is counted."""


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with place_of(request.param, tmp_path) as place:
        yield place


async def test_a_push_is_delivered_once(place: Place) -> None:
    assert await asyncio.gather(*(place.push(device) for device in range(10))) == [Accepted()] * 10
    assert place.delivered() == Counter(range(10))


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("name", PLACES)
async def test_a_trouble_becomes_its_outcome_and_is_over_with_it(
    name: str, trouble: Trouble, tmp_path: Path
) -> None:
    async with place_of(name, tmp_path, SHORT if trouble is Trouble.STALL else 5.0) as place:
        place.meet(trouble)
        assert OUTCOMES[trouble](await place.push())
        place.meet(None)
        assert await place.push() == Accepted()
        assert await place.push(2) == Accepted()
        assert place.delivered() == {1: 2 if trouble is Trouble.GOAWAY else 1, 2: 1}


@pytest.mark.parametrize(
    "trouble", [Trouble.RATE_LIMITED, Trouble.OVERLOADED, Trouble.HUGE_ANSWER, Trouble.LOST]
)
@pytest.mark.parametrize("name", PLACES)
async def test_the_delivery_tries_again_until_a_trouble_is_over(
    name: str, trouble: Trouble, tmp_path: Path
) -> None:
    """With its back-off, which is short here: the provider's own delays are cut to the longest of the settings."""
    async with place_of(name, tmp_path) as place, running_engine({place.kind: place.provider}) as engine:
        place.meet(trouble)
        await filled(engine.store, "a", "q", device=place.device_token(1))
        await engine.receive(received("q"))
        await until(lambda: engine.counters.pushes_retried >= 4)
        assert place.delivered() == {}
        place.meet(None)
        assert (await engine.settled()).accepted == 1
        assert place.delivered() == {1: 1}


async def test_the_delivery_ends_a_token_that_the_provider_calls_invalid(place: Place) -> None:
    async with running_engine({place.kind: place.provider}) as engine:
        place.meet(Trouble.INVALID_TOKEN)
        owner = await filled(engine.store, "a", "q", device=place.device_token(1))
        await engine.receive(received("q"))
        assert (await engine.settled()).failed == {"token_invalid": 1}
        await until(lambda: engine.counters.tokens_invalid == 1)
        found = await engine.store.token(owner.token_id)
        assert found is not None
        assert found.status.state is TokenState.INVALID
        assert engine.counters.pushes_retried == 0


@pytest.mark.parametrize("name", PLACES)
async def test_a_device_without_answers_delays_no_other(name: str, tmp_path: Path) -> None:
    async with place_of(name, tmp_path) as place:
        place.meet(Trouble.STALL)
        stalled = asyncio.create_task(place.push())
        await asyncio.sleep(0)
        assert await asyncio.gather(*(place.push(device) for device in range(2, 12))) == [Accepted()] * 10
        assert not stalled.done()
        await place.leave()
        assert isinstance(await stalled, RetryLater)


async def test_expired_credentials_are_renewed_before_a_push_fails(place: Place) -> None:
    for count in range(1, 4):
        assert await place.push() == Accepted()
        assert place.delivered()[1] == count
        place.expire_credentials()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PLACES)
async def test_whatever_happens_each_push_has_one_true_outcome(name: str, seed: int, tmp_path: Path) -> None:
    """Accepted means delivered, and only a device whose token is invalid is told so."""
    chance = random.Random(seed)
    accepted: Counter[int] = Counter()
    invalid: set[int] = set()
    told_invalid: set[int] = set()

    async def push(place: Place, device: int) -> None:
        outcome = await place.push(device)
        accepted[device] += outcome == Accepted()
        if isinstance(outcome, TokenInvalid):
            told_invalid.add(device)

    passing = [trouble for trouble in Trouble if trouble is not Trouble.STALL]
    async with place_of(name, tmp_path) as place:
        for _ in range(25):
            device = chance.randrange(8)
            trouble = chance.choice([None, None, *passing])
            place.meet(trouble, device)
            if trouble is Trouble.INVALID_TOKEN:
                invalid.add(device)
            pushes = [push(place, chance.randrange(8)) for _ in range(chance.randrange(1, 5))]
            await asyncio.gather(*pushes)
        delivered = place.delivered()
        assert all(delivered[device] >= count for device, count in accepted.items())
        assert accepted.total() > 0
        assert told_invalid <= invalid


async def test_nobody_takes_the_place_of_a_service_that_has_left(place: Place) -> None:
    """The fakes keep their port: in an outage of the tests below, a client of another one once got it."""
    await place.leave()  # before any connection, whose remains would keep the port too
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", place.port))
    assert isinstance(await place.push(), RetryLater)


@pytest.mark.parametrize("name", PLACES)
async def test_an_outage_of_an_hour_costs_no_memory_and_ends_by_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push a second meets nobody. The hour passes on the event loop's clock, which the test moves."""
    loop = asyncio.get_running_loop()
    real, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + passed)
    async with place_of(name, tmp_path) as place:
        assert await place.push() == Accepted()
        await place.leave()
        blocks = []
        for second in range(HOUR):
            passed += 1.0
            await place.provider.wait_for_room()
            assert isinstance(await place.push(second % 100), RetryLater)
            if second % WINDOW == WINDOW - 1:
                blocks.append(blocks_in_use())
        # A leak shows in every window; an import or somebody's thread in one of them.
        assert min(after - before for before, after in pairwise(blocks)) < WINDOW
        await place.come_back()
        passed += HOUR  # however long the service is left alone
        assert await place.push() == Accepted()
        assert place.delivered() == {1: 2}


def blocks_in_use() -> int:
    """Without cycles that wait for the collector, which seldom runs in a process with much memory."""
    gc.collect()
    return sys.getallocatedblocks()


async def test_closing_answers_what_waits_and_takes_nothing_new(place: Place) -> None:
    place.meet(Trouble.LOST)
    waiting = [asyncio.create_task(place.push()) for _ in range(3)]
    await asyncio.sleep(0)
    await place.provider.close()
    assert {type(await each) for each in waiting} == {RetryLater}
    outcome = await place.push()
    assert isinstance(outcome, RetryLater)
    assert outcome.reason == "closed"


async def test_nothing_that_names_a_device_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for trouble in (None, *Trouble):
        if trouble is not Trouble.STALL:
            place.meet(trouble)
            await place.push()
    await place.leave()
    for _ in range(3):  # the first ones may meet the end of a connection, the last one meets nobody
        await place.push()
    for secret in (*place.secrets(1), repr(place.token(1))):
        assert secret not in caplog.text
        assert secret not in repr(place.request(1))
