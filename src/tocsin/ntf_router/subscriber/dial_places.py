"""Places for connection attempts to SMP routers that never answered.

Theory of operation. Devices name SMP routers, and a device can name hosts that do not exist or never answer. An attempt
to reach such a host takes as long as its time limit. So attempts to routers that never answered share a few places.
Each device token has only some of them, and the place goes to the router with the fewest failures, then to the token
with the fewest routers ahead in the line. A router that several tokens named gets the best of their turns. Routers that
have answered need no place.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

from tocsin.protocol.addresses import RouterLocation

Owner: TypeAlias = bytes | None
"""The token that named a router; None for routers from before the start."""


class _Wish(NamedTuple):
    """A token's wish to reach a router. Wishes compare by their rank, which no two have in common."""

    failures: int
    ahead: int
    """Wishes of the same token that waited already or had a place."""
    number: int
    owner: Owner
    turn: asyncio.Future[Owner]
    """Its result is the owner whose wish was granted."""


class DialPlaces:
    """The places, and the line of wishes for one."""

    def __init__(self, places: int, for_each_token: int) -> None:
        self._free = places
        self._for_each_token = for_each_token
        self._for_old_routers = max(1, places // 2)
        self._numbers = 0
        self._held: Counter[Owner] = Counter()
        self._waiting: Counter[Owner] = Counter()
        self._turns: dict[RouterLocation, tuple[int, asyncio.Future[Owner]]] = {}
        """Routers that wait, with their failures."""
        self._line: list[_Wish] = []
        """A heap of wishes for the next place."""
        self._blocked: dict[Owner, list[_Wish]] = {}
        """Heaps of wishes whose tokens hold all their places."""

    @property
    def waiting(self) -> int:
        """The number of routers that wait for a place."""
        return len(self._turns)

    @property
    def in_use(self) -> int:
        return self._held.total()

    @asynccontextmanager
    async def place(self, router: RouterLocation, owner: Owner, failures: int) -> AsyncIterator[None]:
        """Hold a place while the block runs. A router waits for one place at a time."""
        turn: asyncio.Future[Owner] = asyncio.get_running_loop().create_future()
        self._turns[router] = failures, turn
        self.also_named_by(router, owner)
        try:
            holder = await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._release(turn.result())
            raise
        finally:
            del self._turns[router]
        try:
            yield
        finally:
            self._release(holder)

    def also_named_by(self, router: RouterLocation, owner: Owner) -> None:
        """Let another token's turn count for a router that waits. Does nothing if it does not wait."""
        failures, turn = self._turns.get(router, (0, None))
        if turn is None or turn.done():
            return
        self._numbers += 1
        ahead = self._held[owner] + self._waiting[owner]
        self._waiting[owner] += 1
        heapq.heappush(self._line, _Wish(failures, ahead, self._numbers, owner, turn))
        self._give_places()

    def _release(self, owner: Owner) -> None:
        self._free += 1
        _count_down(self._held, owner)
        self._unblock(owner)
        self._give_places()

    def _give_places(self) -> None:
        while self._free and self._line:
            wish = heapq.heappop(self._line)
            owner = wish.owner
            if wish.turn.done():  # another token's wish was granted, or the router is no longer wanted
                _count_down(self._waiting, owner)
                self._unblock(owner)
                continue
            if self._held[owner] >= (self._for_old_routers if owner is None else self._for_each_token):
                heapq.heappush(self._blocked.setdefault(owner, []), wish)
                continue
            self._free -= 1
            self._held[owner] += 1
            _count_down(self._waiting, owner)
            wish.turn.set_result(owner)

    def _unblock(self, owner: Owner) -> None:
        """Let the owner's next wish take its turn."""
        blocked = self._blocked.get(owner)
        if not blocked:
            return
        heapq.heappush(self._line, heapq.heappop(blocked))
        if not blocked:
            del self._blocked[owner]


def _count_down(counter: Counter[Owner], owner: Owner) -> None:
    counter[owner] -= 1
    if not counter[owner]:
        del counter[owner]
