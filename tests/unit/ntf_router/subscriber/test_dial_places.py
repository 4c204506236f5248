"""The order of attempts to reach SMP routers that never answered."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from tocsin.ntf_router.subscriber.dial_places import DialPlaces
from tocsin.protocol.addresses import RouterLocation


def router(number: int) -> RouterLocation:
    return RouterLocation((f"smp{number}.example.com",), "", bytes(32))


class Dialing:
    """Attempts that hold their places until they are told to give up."""

    def __init__(self, places: DialPlaces) -> None:
        self.places = places
        self.begun: list[int] = []
        self.held: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def dial(self, number: int, owner: bytes | None, failures: int = 0) -> None:
        self._ends[number] = asyncio.Event()
        self._tasks[number] = asyncio.create_task(self._run(number, owner, failures))
        await settle()

    async def _run(self, number: int, owner: bytes | None, failures: int) -> None:
        async with self.places.place(router(number), owner, failures):
            self.begun.append(number)
            self.held.append(number)
            await self._ends[number].wait()
            self.held.remove(number)

    async def end(self, number: int) -> None:
        self._ends[number].set()
        await settle()

    async def cancel(self, number: int) -> None:
        self._tasks[number].cancel()
        await asyncio.gather(self._tasks[number], return_exceptions=True)
        if number in self.held:
            self.held.remove(number)
        await settle()

    async def end_all(self) -> None:
        while self.held:
            await self.end(self.held[0])


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_token_with_many_routers_leaves_places_to_others() -> None:
    dialing = Dialing(DialPlaces(8, for_each_token=2))
    for number in range(100):
        await dialing.dial(number, b"hostile")
    await dialing.dial(200, b"honest")
    assert dialing.begun == [0, 1, 200]
    await dialing.end_all()
    assert sorted(dialing.begun) == [*range(100), 200]
    assert (dialing.places.in_use, dialing.places.waiting) == (0, 0)


async def test_the_first_router_of_a_token_comes_before_the_next_of_others() -> None:
    dialing = Dialing(DialPlaces(2, for_each_token=2))
    for number in range(10):
        await dialing.dial(number, b"hostile")
    await dialing.dial(20, b"honest")
    await dialing.end(0)
    assert dialing.begun == [0, 1, 20]


async def test_a_router_that_failed_waits_behind_new_ones() -> None:
    dialing = Dialing(DialPlaces(1, for_each_token=1))
    await dialing.dial(0, b"a")
    await dialing.dial(1, b"b", failures=3)
    await dialing.dial(2, b"c", failures=0)
    await dialing.dial(3, b"d", failures=1)
    await dialing.end_all()
    assert dialing.begun == [0, 2, 3, 1]


async def test_a_router_gets_the_best_turn_of_those_who_named_it() -> None:
    """Nobody can delay a router by naming it last after a hundred others."""
    dialing = Dialing(DialPlaces(4, for_each_token=2))
    for number in range(100):
        await dialing.dial(number, b"hostile")
    dialing.places.also_named_by(router(99), b"honest")
    await settle()
    assert dialing.begun == [0, 1, 99]
    await dialing.end_all()
    assert len(dialing.begun) == 100
    assert (dialing.places.in_use, dialing.places.waiting) == (0, 0)


async def test_routers_from_before_the_start_leave_half_of_the_places() -> None:
    dialing = Dialing(DialPlaces(4, for_each_token=2))
    for number in range(10):
        await dialing.dial(number, None)
    await dialing.dial(20, b"honest")
    assert dialing.begun == [0, 1, 20]


async def test_places_are_neither_lost_nor_given_twice() -> None:
    """Any order of attempts, ends and cancellations: at the end all places are free and all wishes were granted."""
    for seed in range(50):
        chance = random.Random(seed)
        dialing = Dialing(DialPlaces(3, for_each_token=2))
        cancelled: set[int] = set()
        for number in range(60):
            await dialing.dial(number, chance.choice([b"a", b"b", b"c", None]), chance.randrange(3))
            if chance.random() < 0.3:
                dialing.places.also_named_by(router(chance.randrange(number + 1)), b"d")
                await settle()
            if chance.random() < 0.2 and (other := chance.randrange(number + 1)) not in dialing.begun:
                await dialing.cancel(other)
                cancelled.add(other)
            if chance.random() < 0.5 and dialing.held:
                await dialing.end(chance.choice(dialing.held))
            assert len(dialing.held) <= 3
        await dialing.end_all()
        assert sorted(dialing.begun) == sorted(set(range(60)) - cancelled)
        assert (dialing.places.in_use, dialing.places.waiting) == (0, 0)


async def test_a_cancelled_holder_gives_its_place_back() -> None:
    async with AsyncExitStack():
        dialing = Dialing(DialPlaces(1, for_each_token=1))
        await dialing.dial(0, b"a")
        await dialing.dial(1, b"b")
        await dialing.cancel(0)
        assert dialing.held == [1]
        await dialing.end_all()
