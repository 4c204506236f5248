"""How leases are shared among members: a pure decision that every member makes for itself from the same tables.

Each kind of lease is shared evenly, and no lease moves without need. If members see different tables for a moment,
two may want the same free lease, and the database gives it to one of them. So a wrong share is never a danger.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple


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


def share_of(me: int, members: Collection[int], leases: Mapping[str, SeenLease]) -> Share:
    """Decide for one member. Leases of holders that are no members are free."""
    share = Share([], [])
    if me not in members:
        return Share([name for name, lease in leases.items() if lease.holder == me], [])
    for kind in sorted({lease.kind for lease in leases.values()}):
        _share_kind(me, members, kind, {n: each for n, each in leases.items() if each.kind == kind}, share)
    return share


def _share_kind(
    me: int, members: Collection[int], kind: str, leases: Mapping[str, SeenLease], share: Share
) -> None:
    held = Counter(lease.holder for lease in leases.values() if lease.holder in members)
    mine = [name for name, lease in leases.items() if lease.holder == me]
    quota = _quota(me, members, kind, held, len(leases))
    if len(mine) > quota:
        share.give.extend(sorted(mine, key=lambda name: _draw(me, name))[quota:])
    elif len(mine) < quota:
        free = [name for name, lease in leases.items() if lease.holder not in members]
        share.take.extend(sorted(free, key=lambda name: _draw(me, name))[: quota - len(mine)])


def _quota(me: int, members: Collection[int], kind: str, held: Mapping[int | None, int], total: int) -> int:
    """Return how many leases of a kind a member should have. Those that have one too many keep it, if there is one."""
    base, extra = divmod(total, len(members))
    ranked = sorted(members, key=lambda each: (held.get(each, 0) <= base, _draw(each, kind)))
    return base + (ranked.index(me) < extra)


def _draw(member: int, name: str) -> bytes:
    """Order leases differently for each member, so that two rarely want the same one."""
    return hashlib.sha256(f"{member} {name}".encode()).digest()
