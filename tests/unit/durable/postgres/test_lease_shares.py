"""Shares of leases: even, stable, and never two members' by what both see."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.durable.postgres.lease_shares import SeenLease, share_of

MEMBERS = st.sets(st.integers(1, 9), min_size=1, max_size=5)
HOLDERS = st.lists(st.none() | st.integers(1, 12), max_size=30)


def seen(holders: list[int | None], kind: str = "smp") -> dict[str, SeenLease]:
    return {f"{kind} {number}": SeenLease(kind, holder, 1) for number, holder in enumerate(holders)}


def step(members: set[int], leases: dict[str, SeenLease]) -> bool:
    """Let each member do its share, one after the other. Returns whether anything changed."""
    changed = False
    for member in sorted(members):
        share = share_of(member, members, leases)
        for name in share.give:
            assert leases[name].holder == member
            leases[name] = leases[name]._replace(holder=None)
        for name in share.take:
            assert leases[name].holder not in members
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
