"""Leases of members that share a database: who has them, when they end, and what a lost one means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import pytest

from tests.doubles.smp_harness import PATIENCE
from tocsin.durable.postgres.leases import LEASE_TABLES, UNABLE_TABLE, LeaseKeeper, lease_connection
from tocsin.durable.postgres.notices import Notices
from tocsin.durable.postgres.sessions import Connect

SECONDS: Final = 1.0
NAMES: Final = [f"smp {number}" for number in range(6)]


class HeldClock:
    """Goes on by itself, and jumps when it is told to."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


class User:
    """Records what it is told. `hold` keeps leases from ending."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.notices: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    def taken(self, names: Sequence[str]) -> None:
        self.began += names

    async def end(self, name: str) -> None:
        await self.may_end.wait()
        self.ended.append(name)

    def heard(self, notice: str) -> None:
        self.notices.append(notice)

    async def add_wanted(self, connection: asyncpg.Connection[asyncpg.Record]) -> bool:
        rows = await connection.execute(
            "INSERT INTO fleet_leases (name, kind) SELECT n, 'smp' FROM unnest($1::text[]) AS n ON CONFLICT DO NOTHING",
            NAMES,
        )
        return not rows.endswith(" 0")


class Member:
    def __init__(self, connect: Connect) -> None:
        self.user = User()
        self.clock = HeldClock()
        self.leases = LeaseKeeper(
            connect, "test", self.user, seconds=SECONDS, name="a test", clock=self.clock
        )


@pytest.fixture
async def connect(url: str) -> Connect:
    connection = await asyncpg.connect(url)
    await connection.execute(LEASE_TABLES)
    await connection.execute(UNABLE_TABLE)
    await connection.close()
    return lease_connection(url, "test", "public", 5.0)


@asynccontextmanager
async def member(connect: Connect) -> AsyncIterator[Member]:
    made = Member(connect)
    async with made.leases:
        yield made


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_one_member_takes_all_and_gives_all_back_when_it_leaves(connect: Connect) -> None:
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert sorted(first.user.began) == NAMES
    assert sorted(first.user.ended) == NAMES
    assert not first.leases.is_member
    connection = await connect()
    assert await connection.fetchval("SELECT count(*) FROM fleet_leases WHERE holder IS NOT NULL") == 0
    assert await connection.fetchval("SELECT count(*) FROM fleet_instances") == 0
    await connection.close()


async def test_a_new_member_gets_its_share_when_the_former_holder_has_ended(connect: Connect) -> None:
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        first.user.may_end.clear()
        async with member(connect) as second:
            await soon(lambda: len(first.leases.held) == len(NAMES) // 2)
            given = set(NAMES) - set(first.leases.held)
            assert second.leases.held == []
            assert all(first.leases.fence(name) is not None for name in given)  # its last writes still count
            first.user.may_end.set()
            await soon(lambda: set(second.leases.held) == given)
            half = {"smp": len(NAMES) // 2}
            await soon(lambda: list(first.leases.shares().values()) == [half, half])
            await soon(lambda: list(second.leases.shares().values()) == [half, half])
            assert second.leases.counts.taken_over == 0
            assert all(first.leases.fence(name) is None for name in given)
        await soon(lambda: len(first.leases.held) == len(NAMES))


async def test_a_lease_that_has_ended_is_not_held_any_more_before_it_is_given_back(connect: Connect) -> None:
    """Else something could begin under it that nobody would end."""
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        held_after_end: list[str] = []
        give_back = first.leases._give_back

        async def watched(connection: asyncpg.Connection[asyncpg.Record]) -> None:
            held_after_end.extend(name for name in first.user.ended if first.leases.holds(name))
            await give_back(connection)

        first.leases._give_back = watched  # type: ignore[method-assign]
        async with member(connect) as second:
            await soon(lambda: len(second.leases.held) == len(NAMES) // 2)
            assert len(first.user.ended) == len(NAMES) // 2
            assert held_after_end == []


async def test_a_lease_has_a_greater_fence_each_time_it_is_taken(connect: Connect) -> None:
    fences = []
    for _ in range(2):
        async with member(connect) as one:
            await soon(lambda one=one: len(one.leases.held) == len(NAMES))  # type: ignore[misc]
            fences.append([one.leases.fence(name) for name in NAMES])
    assert fences == [[1] * len(NAMES), [2] * len(NAMES)]


async def test_a_member_that_stood_still_has_no_lease_when_it_wakes_up(connect: Connect) -> None:
    """Its own clock says so before anybody else does, and the leases end."""
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        number = first.leases.number
        first.clock.ahead += SECONDS
        assert first.leases.held == []
        assert not first.leases.is_member
        assert all(first.leases.fence(name) is None for name in NAMES)
        await soon(lambda: sorted(first.user.ended) == NAMES)
        await soon(lambda: first.leases.is_member)
        assert first.leases.number != number
        assert first.leases.counts.lapsed == 1
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert first.leases.counts.taken_over == len(NAMES)


async def test_a_member_whose_clock_went_back_has_no_lease(connect: Connect) -> None:
    """It cannot know how long it stood still, for example since a snapshot of its machine."""
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        number = first.leases.number
        first.clock.ahead -= 1000 * SECONDS
        assert first.leases.held == []
        assert not first.leases.is_member
        assert first.leases.fence(NAMES[0]) is None
        await soon(lambda: sorted(first.user.ended) == NAMES)
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert first.leases.number != number


async def test_others_take_over_from_a_member_that_is_gone(connect: Connect) -> None:
    gone = Member(connect)
    await gone.leases.__aenter__()
    await soon(lambda: len(gone.leases.held) == len(NAMES))
    assert gone.leases._task is not None
    gone.leases._task.cancel()  # as a kill: nobody renews
    async with member(connect) as second:
        await soon(lambda: len(second.leases.held) == len(NAMES))
        assert second.leases.counts.taken_over == len(NAMES)
        assert gone.leases.held == []  # it had stopped before the second one could begin
        assert [second.leases.fence(name) for name in NAMES] == [2] * len(NAMES)


async def test_a_member_that_others_took_for_gone_joins_under_another_number(connect: Connect) -> None:
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        number = first.leases.number
        connection = await connect()
        await connection.execute("DELETE FROM fleet_instances")
        await connection.close()
        await soon(lambda: first.leases.number not in (None, number))
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert first.leases.fence(NAMES[0]) == 2


async def test_leases_last_through_a_broken_connection(connect: Connect) -> None:
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        number = first.leases.number
        connection = await connect()
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        renewed = await connection.fetchval("SELECT expires_at FROM fleet_instances")
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval("SELECT expires_at FROM fleet_instances") == renewed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await connection.close()
        assert first.leases.number == number
        assert (len(first.leases.held), first.user.ended) == (len(NAMES), [])


async def test_a_lease_whose_row_is_locked_is_taken_later_and_stops_no_other(connect: Connect) -> None:
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        await connection.fetch("SELECT * FROM fleet_leases WHERE name = $1 FOR SHARE", NAMES[0])
        first.clock.ahead += SECONDS
        await soon(lambda: sorted(first.leases.held) == NAMES[1:])
        await transaction.rollback()
        await soon(lambda: len(first.leases.held) == len(NAMES))
    await connection.close()


async def test_a_notice_reaches_the_member_it_is_for(connect: Connect) -> None:
    async with member(connect) as first, member(connect) as second, Notices(connect) as notices:
        await soon(lambda: len(first.leases.held) == len(second.leases.held) == len(NAMES) // 2)
        assert second.leases.number is not None
        notices.send(second.leases.channel_of(second.leases.number), "hello")
        await soon(lambda: second.user.notices == ["hello"])
        assert first.user.notices == []
        assert {each.number for each in first.leases.members} == {first.leases.number, second.leases.number}
        for name in second.leases.held:
            assert first.leases.holder_of(name) == second.leases.number
        assert first.leases.free == 0


async def test_a_lease_is_handed_over_to_a_member_that_is_able(connect: Connect) -> None:
    async with member(connect) as first, member(connect) as second:
        await soon(lambda: len(first.leases.held) == len(second.leases.held) == len(NAMES) // 2)
        name, numbers = first.leases.held[0], (first.leases.number, second.leases.number)
        first.leases.say_unable(name, unable=True)
        await soon(lambda: second.leases.unable() == {name: frozenset({numbers[0]})})
        assert first.leases.holds(name)  # nobody else is known to be able
        fence = first.leases.fence(name)
        assert fence is not None
        assert numbers[1] is not None
        first.leases.hand_over(name, numbers[1])
        await soon(lambda: second.leases.holds(name))
        assert name in first.user.ended
        assert second.leases.fence(name) == fence + 1
        assert (first.leases.counts.handed_over, second.leases.counts.taken_over) == (1, 0)
        assert len(second.leases.held) == len(NAMES) // 2 + 1  # and gives none for it
        first.leases.say_unable(name, unable=False)
        await soon(lambda: len(first.leases.held) == len(second.leases.held) == len(NAMES) // 2)


async def test_what_a_member_was_unable_for_is_forgotten_with_it(connect: Connect) -> None:
    async with member(connect) as first:
        async with member(connect) as second:
            await soon(lambda: len(first.leases.held) == len(second.leases.held) == len(NAMES) // 2)
            name = second.leases.held[0]
            second.leases.say_unable(name, unable=True)
            await soon(lambda: name in first.leases.unable())
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert first.leases.unable() == {}
    connection = await connect()
    assert await connection.fetchval("SELECT count(*) FROM fleet_unable") == 0
    await connection.close()


async def test_a_lease_is_given_back_if_the_member_that_should_get_it_has_gone(connect: Connect) -> None:
    async with member(connect) as first:
        await soon(lambda: len(first.leases.held) == len(NAMES))
        first.user.may_end.clear()
        async with member(connect) as second:
            await soon(lambda: len(first.leases.members) == 2)
            number, name = second.leases.number, first.leases.held[0]
            assert number is not None
            first.leases.hand_over(name, number)
        first.user.may_end.set()
        await soon(lambda: len(first.leases.held) == len(NAMES))
        assert first.leases.counts.handed_over == 0
