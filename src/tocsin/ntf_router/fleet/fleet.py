"""One instance's part in a fleet: begins and ends what its leases allow, and hears what others tell.

Theory of operation. Leases say which instance is connected to an SMP router, which one pushes to a shard of the tokens,
and which one does the chores (`store.postgres.fences`). Devices may ask any instance: the database has everything, and
a notice tells the instance that must do something about it. Notices may be lost, so each instance also looks, every few
seconds, for new queues of its SMP routers and for recent notifications of its shards. Whoever takes a lease begins with
everything that the store has for it.

A lease that is given back ends first: the connection to the SMP router is closed, pushes in flight get their outcomes.
When all leases lapse, because the database is away or the process stood still, the same happens without waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from asyncpg import Connection, Record

from tocsin.durable.postgres.leases import LeaseKeeper, lease_connection
from tocsin.durable.postgres.notices import Notices
from tocsin.durable.postgres.schema_owner import process_name
from tocsin.durable.postgres.sessions import Connect
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.delivery import PushDelivery
from tocsin.ntf_router.fleet.shared_pushes import SharedPushes
from tocsin.ntf_router.fleet.shared_subscriber import SharedSubscriber, router_of_lease
from tocsin.ntf_router.fleet.smp_reach import SmpReach
from tocsin.ntf_router.fleet.told import CodeTold, LostTold, PendingTold, ReachedTold, RouterTold, parse_told
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.postgres.fences import CHORES, PUSHES, ROUTERS, router_lease, shard_of
from tocsin.ntf_router.store.postgres.fleet_rows import add_wanted_leases
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore
from tocsin.ntf_router.store.postgres.schema import own_schema, search_path
from tocsin.ntf_router.subscriber.smp_subscribers import SmpSubscribers
from tocsin.operate.clock import Clock
from tocsin.operate.timers import Timers
from tocsin.protocol.addresses import RouterLocation

LOOK_SECONDS: Final = 2.0
"""Between looks for what no notice has told."""
RECENT_SECONDS: Final = 60
"""How far back notifications are looked for, by our clock."""
WALK_SECONDS: Final = 30.0
"""Between rounds through all pending notifications, which find those whose time another clock gave."""
WALK_PAGE: Final = 1_000
"""Tokens that one look of such a round reads."""
DRAIN_SECONDS: Final = 2.0
"""Pushes in flight are awaited for this long before their shard is given back."""
DRAIN_LOOK: Final = 0.02

logger = logging.getLogger(__name__)


class Fleet:
    """Implements `LeaseUser`."""

    def __init__(
        self,
        connect: Connect,
        settings: NtfSettings,
        store: NtfPostgresStore,
        delivery: PushDelivery,
        clock: Clock,
    ) -> None:
        self._store: Final = store
        self._delivery: Final = delivery
        self._clock: Final = clock
        self.leases: Final = LeaseKeeper(
            connect,
            own_schema(settings.database_schema),
            self,
            seconds=settings.fleet_lease,
            name=process_name("ntf"),
        )
        self.notices: Final = Notices(connect)
        self.pushes: Final = SharedPushes(delivery, self.leases, self.notices, store)
        self._rows: Final = store.fence_by(self.leases)
        self._subscriber: SharedSubscriber
        self._patience: Final = settings.fleet_patience
        self.reach: SmpReach
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: tuple[float, frozenset[int]] = (0.0, frozenset())
        self._recovering = False
        self._recover_again = False
        self._walk_at = 0.0
        """Loop time from which the next page of a round is read."""
        self._walked: bytes | None = None
        """The last token of this round."""

    def subscriber_of(self, subscribers: SmpSubscribers) -> SharedSubscriber:
        """Return what commands use instead of these subscribers. Leases begin and end their connections."""
        self.reach = SmpReach(subscribers, self.leases, self.notices, self._store, self._patience)
        self._subscriber = SharedSubscriber(subscribers, self.leases, self.notices, self._store, self._rows)
        return self._subscriber

    @asynccontextmanager
    async def running(self, known: asyncio.Event) -> AsyncIterator[None]:
        """Be a member: take leases, look regularly, and give all leases back at the end.

        `known` is set when this member has taken its share. What leases allow must still run at the end.
        """
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.notices)
                timers = await stack.enter_async_context(Timers("fleet"))
                await stack.enter_async_context(self.leases)
                timers.every(LOOK_SECONDS, self._look)
                timers.run(self._set_when_settled(known))
                yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_when_settled(self, known: asyncio.Event) -> None:
        await self.leases.settled.wait()
        known.set()

    def holds_router(self, router: RouterLocation) -> bool:
        """Whether this process may subscribe at an SMP router now."""
        return self.leases.holds(router_lease(router))

    @property
    def does_chores(self) -> bool:
        """Whether this instance does what one should do for all."""
        return self.leases.holds(CHORES)

    # As the user of the leases

    def taken(self, names: Sequence[str]) -> None:
        routers = [name for name in names if name.startswith(f"{ROUTERS} ")]
        if routers:
            self._spawn(self._subscriber.begin(routers))
        if any(name.startswith(f"{PUSHES} ") for name in names):
            self._spawn(self._recover())

    async def end(self, name: str) -> None:
        kind, _, rest = name.partition(" ")
        if kind == ROUTERS:
            await self._subscriber.end(name)
        elif kind == PUSHES:
            await self._drain(int(rest))

    def heard(self, notice: str) -> None:
        match parse_told(notice):
            case PendingTold() as told:
                self.pushes.pending_told(told)
            case CodeTold() as told:
                self._spawn(self.pushes.code_told(told))
            case RouterTold(key_hash):
                self._spawn(self._subscriber.look([RouterLocation(("",), "", key_hash)]))
            case ReachedTold() as told:
                self.reach.reached_told(told)
            case LostTold() as told:
                self.reach.lost_told(told)
            case None:
                logger.info("an instance of another version sent a notice that is not known here")

    async def add_wanted(self, connection: Connection[Record]) -> bool:
        return await add_wanted_leases(connection)

    # What it does by itself

    async def _recover(self) -> None:
        """Push what is pending for our shards. If more shards come meanwhile, do it once more."""
        self._recover_again = True
        if self._recovering:
            return
        self._recovering = True
        try:
            while self._recover_again:
                self._recover_again = False
                if found := await self._delivery.recover():
                    logger.info("%d tokens of new leases have pending notifications", found)
        finally:
            self._recovering = False

    async def _drain(self, shard: int) -> None:
        """Wait until pushes of a shard have their outcomes, unless the lease is lost."""
        loop = asyncio.get_running_loop()
        until = loop.time() + DRAIN_SECONDS
        while self.leases.is_member and loop.time() < until and self._is_busy(shard, loop.time()):  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_LOOK)

    def _is_busy(self, shard: int, now: float) -> bool:
        return self._delivery.periodic_unsettled or shard in self._busy_shards(now)

    def _busy_shards(self, now: float) -> frozenset[int]:
        """Return the shards with pushes in flight. All shards that end share one look."""
        if now - self._busy[0] >= DRAIN_LOOK:
            self._busy = now, frozenset(map(shard_of, self._delivery.tokens_in_flight()))
        return self._busy[1]

    async def _look(self) -> None:
        """Find what no notice has told. Raises StoreError."""
        for attempt in self.reach.look():
            self._spawn(attempt)
        await self.pushes.codes_again()
        held = self.leases.held
        if routers := [router_of_lease(name) for name in held if name.startswith(f"{ROUTERS} ")]:
            await self._subscriber.look(routers)
        if shards := [int(name.partition(" ")[2]) for name in held if name.startswith(f"{PUSHES} ")]:
            for token_id in await self._rows.recently_pending(self._clock.now() - RECENT_SECONDS, shards):
                self._delivery.notify(token_id, None)
            await self._walk()

    async def _walk(self) -> None:
        """Find pending notifications whatever time they have: clocks of instances may differ. Raises StoreError."""
        now = asyncio.get_running_loop().time()
        if now < self._walk_at:
            return
        found = await self._store.tokens_with_pending(self._walked, WALK_PAGE)
        for token_id in found:
            self._delivery.notify(token_id, None)
        self._walked = found[-1] if len(found) == WALK_PAGE else None
        if self._walked is None:
            self._walk_at = now + WALK_SECONDS

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "something that another instance told was not done; the next look finds it: %s", error
            )


def fleet_of(settings: NtfSettings, store: NtfStore, delivery: PushDelivery, clock: Clock) -> Fleet:
    """Make this process a member. Raises ConfigError if the settings do not allow a fleet."""
    if not isinstance(store, NtfPostgresStore) or settings.database_url is None:
        raise ConfigError("fleet: on needs a PostgreSQL database: set [STORE_LOG] db_connection")
    path = search_path(settings.database_schema)
    connect = lease_connection(settings.database_url, "ntf", path, settings.fleet_lease)
    return Fleet(store.at_our_server(connect), settings, store, delivery, clock)
