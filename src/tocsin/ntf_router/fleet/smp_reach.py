"""SMP routers that one instance cannot reach and another one can.

Theory of operation. An instance that holds an SMP router's lease and cannot reach it for `fleet_patience` says so in
the database, and goes on trying. Others then try once, with a handshake and nothing more. Whoever reaches it tells the
holder, which hands the lease over. Whoever does not says so too, and tries again with growing delays, as the former
holder does. So nothing moves while nobody reaches an SMP router, and an SMP router that is gone costs each instance one
attempt in five minutes. The former holder gets no other SMP router in place of the one it gave, until it reaches it.

Delays are about one loss. A holder that had subscribed there and loses it tells the others, and they try at once,
whatever they tried before. It tells them at a limited rate, so that a network that breaks again and again moves few
leases, and an SMP router that answers and then closes costs few attempts. Without that notice the delays hold.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tocsin.clients.settings import Backoff
from tocsin.durable.postgres.leases import LeaseKeeper
from tocsin.durable.postgres.notices import Notices
from tocsin.ntf_router.fleet.shared_subscriber import router_of_lease
from tocsin.ntf_router.fleet.told import MOST_ROUTERS, LostTold, ReachedTold
from tocsin.ntf_router.session.rates import RateLimit, RateTable
from tocsin.ntf_router.store.interface import SubscriptionStore
from tocsin.ntf_router.store.postgres.fences import ROUTERS, router_lease
from tocsin.ntf_router.subscriber.smp_subscribers import SmpSubscribers
from tocsin.protocol.addresses import RouterLocation

ATTEMPTS_AT_ONCE: Final = 16
DELAYS: Final = Backoff(initial=10.0, increase_after=0.0, maximum=300.0, factor=2.0)
"""Between attempts to reach one SMP router that somebody cannot reach."""
KEEP_SECONDS: Final = 600.0
"""Delays are remembered for this long after the latest attempt, so that an unsteady network moves few leases."""
LOSSES: Final = RateLimit(burst=6, interval=30.0)
"""How often an instance tells the others that it has lost one SMP router."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReachCounts:
    """Totals since the start."""

    attempts: int = 0
    """Attempts to reach SMP routers that an instance cannot reach."""
    failures: int = 0


@dataclass(slots=True)
class _Attempts:
    """Attempts to reach one SMP router."""

    delays: Iterator[float] = field(default_factory=DELAYS.delays)
    next_at: float = 0.0
    """Loop time."""
    running: bool = False


class SmpReach:
    """Attempts run as tasks of the caller, which calls `look` every few seconds."""

    def __init__(
        self,
        subscribers: SmpSubscribers,
        leases: LeaseKeeper,
        notices: Notices,
        store: SubscriptionStore,
        patience: float,
    ) -> None:
        self._subscribers: Final = subscribers
        self._leases: Final = leases
        self._notices: Final = notices
        self._store: Final = store
        self._patience: Final = patience
        self._attempts: dict[str, _Attempts] = {}
        self._lost: frozenset[str] = frozenset()
        """Our leases of SMP routers that we could not reach at the latest look."""
        self._losses: Final = RateTable(LOSSES)
        self._places: Final = asyncio.Semaphore(ATTEMPTS_AT_ONCE)
        self.counts: Final = ReachCounts()

    @property
    def unreachable(self) -> int:
        """The number of SMP routers that this instance has said it cannot reach."""
        return sum(self._leases.number in members for members in self._leases.unable().values())

    def look(self) -> list[Coroutine[None, None, None]]:
        """Say which of our SMP routers we cannot reach. Returns attempts to reach those of others."""
        now = asyncio.get_running_loop().time()
        held = [name for name in self._leases.held if name.startswith(f"{ROUTERS} ")]
        lost = frozenset(filter(self._is_lost, held))
        for name in held:
            self._leases.say_unable(name, unable=name in lost)
        self._tell_lost([router_of_lease(name).key_hash for name in lost - self._lost], now)
        self._lost = lost
        attempts = []
        for name in self._leases.unable():
            attempt = self._attempts.setdefault(name, _Attempts())
            if not attempt.running and now >= attempt.next_at and self._is_of_use(name):
                attempt.running = True
                attempts.append(self._attempt(name, attempt))
        for name, attempt in list(self._attempts.items()):
            if not attempt.running and now >= attempt.next_at + KEEP_SECONDS:
                del self._attempts[name]
        return attempts

    def reached_told(self, told: ReachedTold) -> None:
        """Another instance can reach one of our SMP routers."""
        name = router_lease(RouterLocation(("",), "", told.key_hash))
        if self._is_lost(name):
            self._leases.hand_over(name, told.member)

    def lost_told(self, told: LostTold) -> None:
        """Another instance has lost SMP routers that it had: earlier attempts say nothing about them now."""
        for key_hash in told.key_hashes:
            self._attempts.pop(router_lease(RouterLocation(("",), "", key_hash)), None)

    def _tell_lost(self, key_hashes: Sequence[bytes], now: float) -> None:
        """Tell the others which SMP routers we had until now, unless we told so often of late."""
        told = [
            each for each in key_hashes if self._subscribers.was_served(each) and self._losses.take(each, now)
        ]
        for start in range(0, len(told), MOST_ROUTERS):
            notice = LostTold(tuple(told[start : start + MOST_ROUTERS])).text()
            for member in self._leases.members:
                if member.number != self._leases.number:
                    self._notices.send(self._leases.channel_of(member.number), notice)

    def _is_lost(self, name: str) -> bool:
        lost = self._subscribers.lost_seconds(router_of_lease(name).key_hash)
        return lost is not None and lost >= self._patience

    def _is_of_use(self, name: str) -> bool:
        """Whether its holder cannot reach it, or we could not."""
        holder, unable = self._leases.holder_of(name), self._leases.unable().get(name, frozenset())
        return not self._leases.holds(name) and (holder in unable or self._leases.number in unable)

    async def _attempt(self, name: str, attempt: _Attempts) -> None:
        """Try to reach an SMP router, say whether we can, and tell the holder. Raises StoreError."""
        router, reached = router_of_lease(name), False
        try:
            async with self._places:
                self.counts.attempts += 1
                wanted = await self._store.wanted_routers([router])
                reached = bool(wanted) and await self._subscribers.try_to_reach(wanted[0])
                self.counts.failures += not reached
        finally:
            chance = random.random()  # noqa: S311 - so that not all try at the same time
            attempt.next_at = asyncio.get_running_loop().time() + DELAYS.spread(next(attempt.delays), chance)
            attempt.running = False
        if self._leases.holds(name):
            return
        self._leases.say_unable(name, unable=not reached)
        holder, number = self._leases.holder_of(name), self._leases.number
        if reached and number is not None and holder is not None:  # the holder knows whether it needs us
            self._notices.send(self._leases.channel_of(holder), ReachedTold(router.key_hash, number).text())
