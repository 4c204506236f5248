"""When instances try an SMP router that its holder cannot reach, with a held clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tocsin.durable.postgres.leases import Member
from tocsin.ntf_router.fleet.smp_reach import LOSSES, SmpReach
from tocsin.ntf_router.fleet.told import MOST_ROUTERS, LostTold, ReachedTold, parse_told
from tocsin.ntf_router.store.postgres.fences import router_lease
from tocsin.protocol.addresses import RouterLocation

ME, OTHER, THIRD = 1, 2, 3
PATIENCE: Final = 5.0
KEY_HASH: Final = b"\x01" * 32


def lease_of(key_hash: bytes) -> str:
    return router_lease(RouterLocation(("",), "", key_hash))


LEASE: Final = lease_of(KEY_HASH)


@dataclass
class Surroundings:
    """Implements the collaborators of `SmpReach` for one instance."""

    number: int = ME
    now: float = 1000.0
    holders: dict[str, int] = field(default_factory=dict)
    said: dict[str, set[int]] = field(default_factory=dict)
    """Members that are unable, by the lease."""
    lost: dict[bytes, float] = field(default_factory=dict)
    """Seconds for which SMP routers are lost."""
    served: set[bytes] = field(default_factory=set)
    reachable: bool = True
    tried: int = 0
    sent: list[tuple[str, str]] = field(default_factory=list)
    members: tuple[Member, ...] = tuple(Member(number, "", leaving=False) for number in (ME, OTHER, THIRD))

    @property
    def held(self) -> list[str]:
        return [name for name, holder in self.holders.items() if holder == self.number]

    def holds(self, name: str) -> bool:
        return name in self.held

    def holder_of(self, name: str) -> int | None:
        return self.holders.get(name)

    def unable(self) -> dict[str, frozenset[int]]:
        return {name: frozenset(members) for name, members in self.said.items() if members}

    def say_unable(self, name: str, *, unable: bool) -> None:
        members = self.said.setdefault(name, set())
        (members.add if unable else members.discard)(self.number)

    def channel_of(self, number: int) -> str:
        return f"instance {number}"

    def send(self, channel: str, notice: str) -> None:
        self.sent.append((channel, notice))

    def lost_seconds(self, key_hash: bytes) -> float | None:
        return self.lost.get(key_hash)

    def was_served(self, key_hash: bytes) -> bool:
        return key_hash in self.served

    async def wanted_routers(self, routers: list[RouterLocation]) -> list[RouterLocation]:
        return routers

    async def try_to_reach(self, _wanted: RouterLocation) -> bool:
        self.tried += 1
        return self.reachable

    def told_lost(self) -> list[LostTold]:
        """Notices that the second instance got since the last call."""
        told = [parse_told(notice) for channel, notice in self.sent if channel == self.channel_of(OTHER)]
        self.sent.clear()
        return [each for each in told if isinstance(each, LostTold)]


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@pytest.fixture
async def reach(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> SmpReach:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: around.now)
    parts: Any = around
    return SmpReach(parts, parts, parts, parts, PATIENCE)


async def look(around: Surroundings, reach: SmpReach, *, after: float = 0.0) -> int:
    """Let time pass and look. Returns how many attempts were made."""
    around.now += after
    before = around.tried
    for attempt in reach.look():
        await attempt
    return around.tried - before


async def test_a_holder_that_loses_what_it_had_tells_all_others_once(
    around: Surroundings, reach: SmpReach
) -> None:
    around.holders[LEASE] = ME
    around.served.add(KEY_HASH)
    around.lost[KEY_HASH] = PATIENCE - 1
    await look(around, reach)
    assert not around.sent
    around.lost[KEY_HASH] = PATIENCE
    await look(around, reach)
    notice = LostTold((KEY_HASH,)).text()
    assert around.sent == [(around.channel_of(number), notice) for number in (OTHER, THIRD)]
    await look(around, reach, after=60.0)
    assert len(around.sent) == 2


async def test_a_holder_that_had_nothing_there_says_so_and_hurries_nobody(
    around: Surroundings, reach: SmpReach
) -> None:
    """An SMP router may answer and then close: no instance should dial it often for that."""
    around.holders[LEASE] = ME
    around.lost[KEY_HASH] = PATIENCE
    await look(around, reach)
    assert around.unable() == {LEASE: frozenset({ME})}
    assert not around.sent


async def test_losses_are_told_at_a_limited_rate(around: Surroundings, reach: SmpReach) -> None:
    around.holders[LEASE] = ME
    around.served.add(KEY_HASH)

    async def lose_again() -> int:
        around.lost.pop(KEY_HASH, None)
        await look(around, reach)
        around.lost[KEY_HASH] = PATIENCE
        await look(around, reach)
        return len(around.told_lost())

    assert [await lose_again() for _ in range(LOSSES.burst + 2)] == [1] * LOSSES.burst + [0, 0]
    around.now += LOSSES.interval
    assert [await lose_again() for _ in range(2)] == [1, 0]


async def test_many_lost_smp_routers_take_few_notices(around: Surroundings, reach: SmpReach) -> None:
    hashes = {number.to_bytes(32, "big") for number in range(MOST_ROUTERS + 1)}
    around.holders = {lease_of(each): ME for each in hashes}
    around.served = set(hashes)
    around.lost = dict.fromkeys(hashes, PATIENCE)
    await look(around, reach)
    told = around.told_lost()
    assert len(told) == 2
    assert {each for notice in told for each in notice.key_hashes} == hashes


async def test_an_smp_router_that_nobody_reaches_is_tried_with_growing_delays(
    around: Surroundings, reach: SmpReach
) -> None:
    around.holders[LEASE] = OTHER
    around.said[LEASE] = {OTHER}
    around.reachable = False
    made = [await look(around, reach, after=2.0) for _ in range(300)]
    assert 5 <= sum(made) <= 7  # in ten minutes: at once, then after 10, 20, 40, 80, 160, 300 s
    assert made[0] == 1


@pytest.mark.parametrize("reachable", [False, True])
async def test_an_smp_router_that_another_one_had_until_now_is_tried_at_once_whatever_was_tried_before(
    around: Surroundings, reach: SmpReach, reachable: bool
) -> None:
    around.holders[LEASE] = OTHER
    around.said[LEASE] = {OTHER}
    around.reachable = reachable
    assert await look(around, reach) == 1
    around.holders[LEASE] = THIRD
    around.said[LEASE] |= {THIRD}
    assert await look(around, reach, after=2.0) == 0
    around.reachable = True
    reach.lost_told(LostTold((KEY_HASH, b"\x02" * 32)))
    assert await look(around, reach, after=2.0) == 1
    assert around.sent[-1] == (around.channel_of(THIRD), ReachedTold(KEY_HASH, ME).text())
    assert await look(around, reach, after=2.0) == 0


async def test_a_holder_is_told_that_it_is_reached_although_its_row_was_not_seen_yet(
    around: Surroundings, reach: SmpReach
) -> None:
    """The notice of a loss may be here before the row. This instance tries anyway if it could not reach it before."""
    around.holders[LEASE] = OTHER
    around.said[LEASE] = {ME}
    reach.lost_told(LostTold((KEY_HASH,)))
    assert await look(around, reach) == 1
    assert around.sent == [(around.channel_of(OTHER), ReachedTold(KEY_HASH, ME).text())]
