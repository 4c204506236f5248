"""How leases are shared among members: a pure decision that every member makes for itself from the same tables.

Each kind of lease is shared evenly, and no lease moves without need. If members see different tables for a moment,
two may want the same free lease, and the database gives it to one of them. So a wrong share is never a danger.

Members may say that they are unable to do what a lease allows. If another member has such a lease, it stays there and
counts as if a member that is unable had it, so that this member gets no other one in its place. A lease that all
members are unable for is a lease as any other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias


class SeenLease(NamedTuple):
    """A lease as its row says."""

    kind: str
    holder: int | None
    """The number of its holder, which may be gone; None if it was given back."""
    fence: int


class Share(NamedTuple):
    give: list[str]
    """Leases to give up, because others have too few."""
    take: list[str]
    """Free leases to take."""


Unable: TypeAlias = Mapping[str, Collection[int]]
"""Members that are unable to do what a lease allows, by its name."""


def share_of(
    me: int, members: Collection[int], leases: Mapping[str, SeenLease], unable: Unable = MappingProxyType({})
) -> Share:
    """Decide for one member. Leases of holders that are no members are free."""
    share = Share([], [])
    if me not in members:
        return Share([name for name, lease in leases.items() if lease.holder == me], [])
    aside = _set_aside(members, leases, unable)
    for kind in sorted({lease.kind for lease in leases.values()}):
        _share_kind(
            me, members, kind, {n: each for n, each in leases.items() if each.kind == kind}, aside, share
        )
    share.take.extend(
        name
        for name in sorted(aside)
        if leases[name].holder not in members and me not in unable[name]  # whoever is first gets it
    )
    return share


def _set_aside(members: Collection[int], leases: Mapping[str, SeenLease], unable: Unable) -> dict[str, int]:
    """Return leases that a member which is unable has lost to another, or will lose, and the member they count for."""
    aside = {}
    for name, saying in unable.items():
        refusing = set(members).intersection(saying)
        if (
            name in leases
            and refusing
            and len(refusing) < len(members)
            and leases[name].holder not in refusing
        ):
            aside[name] = min(refusing)
    return aside


def _share_kind(
    me: int,
    members: Collection[int],
    kind: str,
    leases: Mapping[str, SeenLease],
    aside: Mapping[str, int],
    share: Share,
) -> None:
    counted = {name: aside.get(name, lease.holder) for name, lease in leases.items()}
    held = Counter(holder for holder in counted.values() if holder in members)
    mine = [name for name, lease in leases.items() if lease.holder == me and name not in aside]
    lost = sum(holder == me for name, holder in counted.items() if name in aside)
    quota = max(0, _quota(me, members, kind, held, len(leases)) - lost)
    if len(mine) > quota:
        share.give.extend(sorted(mine, key=lambda name: _draw(me, name))[quota:])
    elif len(mine) < quota:
        free = [name for name, holder in counted.items() if holder not in members]
        share.take.extend(sorted(free, key=lambda name: _draw(me, name))[: quota - len(mine)])


def _quota(me: int, members: Collection[int], kind: str, held: Mapping[int | None, int], total: int) -> int:
    """Return how many leases of a kind a member should have. Those that have one too many keep it, if there is one."""
    base, extra = divmod(total, len(members))
    ranked = sorted(members, key=lambda each: (held.get(each, 0) <= base, _draw(each, kind)))
    return base + (ranked.index(me) < extra)


def _draw(member: int, name: str) -> bytes:
    """Order leases differently for each member, so that two rarely want the same one."""
    return hashlib.sha256(f"{member} {name}".encode()).digest()
