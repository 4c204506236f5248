"""Shares of leases: even, stable, and never two members' by what both see."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from tocsin.durable.postgres.lease_shares import SeenLease, share_of

MEMBERS = st.sets(st.integers(1, 9), min_size=1, max_size=5)
HOLDERS = st.lists(st.none() | st.integers(1, 12), max_size=30)


def seen(holders: list[int | None], kind: str = "smp") -> dict[str, SeenLease]:
    return {f"{kind} {number}": SeenLease(kind, holder, 1) for number, holder in enumerate(holders)}


def step(
    members: set[int],
    leases: dict[str, SeenLease],
    unable: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> bool:
    """Let each member do its share, one after the other. Returns whether anything changed."""
    changed = False
    for member in sorted(members):
        share = share_of(member, members, leases, unable)
        for name in share.give:
            assert leases[name].holder == member
            leases[name] = leases[name]._replace(holder=None)
        for name in share.take:
            assert leases[name].holder not in members
            assert member not in unable.get(name, ()) or members <= set(unable[name])
            leases[name] = leases[name]._replace(holder=member)
        changed = changed or bool(share.give or share.take)
    return changed


@given(MEMBERS, HOLDERS)
def test_after_two_rounds_all_is_shared_evenly_and_nothing_moves_any_more(
    members: set[int], holders: list[int | None]
) -> None:
    leases = seen(holders)
    for _ in range(2):
        step(members, leases)
    assert not step(members, leases)
    counts = [sum(lease.holder == member for lease in leases.values()) for member in members]
    assert sum(counts) == len(leases)
    assert max(counts) - min(counts) <= 1


@given(MEMBERS, HOLDERS)
def test_a_member_that_has_no_more_than_its_share_gives_nothing(
    members: set[int], holders: list[int | None]
) -> None:
    leases = seen(holders)
    for member in members:
        held = sum(lease.holder == member for lease in leases.values())
        if held <= len(leases) // len(members):
            assert share_of(member, members, leases).give == []


def test_kinds_are_shared_each_for_itself() -> None:
    leases = seen([None] * 4) | seen([None] * 2, "push")
    for member in (1, 2):
        share = share_of(member, {1, 2}, leases)
        assert sorted(name.partition(" ")[0] for name in share.take) == ["push", "smp", "smp"]


def test_one_that_is_no_member_gives_up_all_and_takes_nothing() -> None:
    leases = seen([7, None, 7])
    share = share_of(7, {1}, leases)
    assert (sorted(share.give), share.take) == (["smp 0", "smp 2"], [])


UNABLE = st.dictionaries(st.integers(0, 29).map(lambda number: f"smp {number}"), st.sets(st.integers(1, 12)))


@given(MEMBERS, HOLDERS, UNABLE)
def test_nothing_moves_for_ever_whoever_is_unable(
    members: set[int], holders: list[int | None], unable: dict[str, set[int]]
) -> None:
    """An unable member never takes a lease that another one can use."""
    leases = seen(holders)
    rounds = 0
    while step(members, leases, unable):
        rounds += 1
        assert rounds <= 3
    assert all(lease.holder in members for lease in leases.values())


def test_a_member_that_gave_what_it_is_unable_for_gets_nothing_in_its_place() -> None:
    """Else it would get one SMP router after the other that it cannot reach."""
    leases = seen([1, 1, 2, 2, 3, 3])
    for name in ("smp 0", "smp 1"):
        leases[name] = SeenLease("smp", 2, 2)
    unable = {"smp 0": {1}, "smp 1": {1}}
    assert not step({1, 2, 3}, leases, unable)
    assert step({1, 2, 3}, leases, {})  # when it is able again


def test_a_free_lease_goes_to_a_member_that_is_able() -> None:
    everybody = {1, 2, 3}
    leases = seen([1, 2, 3, None])
    for one in everybody:
        for able in ({one}, everybody - {one}):
            unable = {"smp 3": everybody - able}
            assert {each for each in everybody if share_of(each, everybody, leases, unable).take} == able
    assert sum(bool(share_of(each, everybody, leases, {"smp 3": everybody}).take) for each in everybody) == 1
