"""Leases of one process among several that share a schema: who does what, and how others know that it ended.

Theory of operation. Each process is a member: a row with a time, by the database's clock, which the member moves on
every second. A member that does not is removed by any other, and never comes back under its number. A lease is a row
with its holder's number and a fence. Whoever takes a lease raises its fence, and only a lease that was given back, or
whose holder is no member, can be taken. Writes under a lease compare its fence in their own transaction, so a late one
changes nothing.

A member that is unable to do what its lease allows says so in a row, and keeps the lease. Another one that finds itself
able tells it, and the holder hands the lease over. What "able" means is the user's business (`LeaseUser`).

The member itself stops earlier than the others may begin: it counts the time of its lease from before it asked to
renew it, leaves a margin, and uses a clock that goes on while the machine sleeps (`own_clock`). When that time is over
it has no leases, whatever else it does not know (`lapse`). It then joins again under a new number.

One connection does all this, and nothing else, so that a busy store never delays a renewal. It also hears of changes
(LISTEN). A change that it does not hear of is found with the next look at the tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import asyncpg
from asyncpg import Connection, Record

from tocsin.durable.postgres.connecting import writer_options
from tocsin.durable.postgres.lease_shares import SeenLease, share_of
from tocsin.durable.postgres.schema_owner import process_name
from tocsin.durable.postgres.sessions import Connect, in_sessions

LEASE_TABLES: Final = """
    CREATE TABLE fleet_instances (
        number bigint NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        name text NOT NULL,
        joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        expires_at timestamptz NOT NULL,
        leaving boolean NOT NULL DEFAULT false
    );

    CREATE TABLE fleet_leases (
        name text NOT NULL PRIMARY KEY,
        kind text NOT NULL,
        holder bigint,
        fence bigint NOT NULL DEFAULT 0,
        taken_at timestamptz
    );
"""
"""Both tables are found by the search path of the connection."""
DROP_LEASE_TABLES: Final = "DROP TABLE fleet_instances, fleet_leases"
UNABLE_TABLE: Final = """
    CREATE TABLE fleet_unable (
        lease text NOT NULL,
        member bigint NOT NULL,
        PRIMARY KEY (lease, member)
    );
"""
DROP_UNABLE_TABLE: Final = "DROP TABLE fleet_unable"

RENEWALS: Final = 5
"""Renewals in the time of a lease."""
MARGIN: Final = 0.2
"""The share of a lease's time by which its holder stops before others may begin."""
LOOK_SECONDS: Final = 10.0
"""Seconds between looks at all leases when nobody reports a change."""
NEVER: Final = float("-inf")
"""A time that is past on every clock."""

_JOIN: Final = """
    INSERT INTO fleet_instances (name, expires_at)
    VALUES ($1, clock_timestamp() + $2::float8 * interval '1 second') RETURNING number
"""
_RENEW: Final = """
    UPDATE fleet_instances SET expires_at = clock_timestamp() + $2::float8 * interval '1 second', leaving = $3
    WHERE number = $1 RETURNING true
"""
_REMOVE_LATE: Final = "DELETE FROM fleet_instances WHERE expires_at <= clock_timestamp()"
_LEAVE: Final = "DELETE FROM fleet_instances WHERE number = $1"
_MEMBERS: Final = "SELECT number, name, leaving, joined_at FROM fleet_instances ORDER BY number"
_LEASES: Final = "SELECT name, kind, holder, fence FROM fleet_leases"
# The fence is compared with the one that was seen: a row that changed meanwhile is not taken, although this statement
# may not see who its new holder is.
_TAKE: Final = """
    WITH free AS (
        SELECT l.name, l.holder FROM fleet_leases l
        JOIN unnest($2::text[], $3::bigint[]) AS wanted (name, fence) ON l.name = wanted.name
        WHERE l.fence = wanted.fence
            AND (l.holder IS NULL OR NOT EXISTS (SELECT FROM fleet_instances i WHERE i.number = l.holder))
            AND EXISTS (SELECT FROM fleet_instances i WHERE i.number = $1)
        FOR UPDATE OF l SKIP LOCKED
    )
    UPDATE fleet_leases l SET holder = $1, fence = l.fence + 1, taken_at = clock_timestamp() FROM free
    WHERE l.name = free.name RETURNING l.name, l.fence, free.holder AS before
"""
_GIVE_BACK: Final = "UPDATE fleet_leases SET holder = NULL WHERE holder = $1 AND name = ANY($2::text[])"
# The fence goes up as if the other member had taken it.
_HAND_OVER: Final = """
    UPDATE fleet_leases l SET holder = i.number, fence = l.fence + 1, taken_at = clock_timestamp()
    FROM unnest($2::text[], $3::bigint[]) AS heir (name, number)
    JOIN fleet_instances i ON i.number = heir.number AND NOT i.leaving
    WHERE l.name = heir.name AND l.holder = $1 RETURNING l.name
"""
_UNABLE: Final = "SELECT lease, member FROM fleet_unable"
_SAY_UNABLE: Final = """
    INSERT INTO fleet_unable (lease, member) SELECT name, $1 FROM unnest($2::text[]) AS name ON CONFLICT DO NOTHING
"""
_SAY_ABLE: Final = "DELETE FROM fleet_unable WHERE member = $1 AND lease = ANY($2::text[])"
_REMOVE_GONE: Final = """
    DELETE FROM fleet_unable u WHERE NOT EXISTS (SELECT FROM fleet_instances i WHERE i.number = u.member)
"""
_CHANGED: Final = "leases"
"""The notice that members or leases have changed."""


logger = logging.getLogger(__name__)


def own_clock() -> float:
    """Return seconds of a clock that never goes back, and goes on while the process or the machine is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def lease_connection(url: str, program: str, search_path: str, seconds: float) -> Connect:
    """Return what connects for a `LeaseKeeper`. No statement may take longer than a lease."""

    async def connect() -> Connection[Record]:
        milliseconds = str(int(seconds * 1000))
        settings: dict[str, Any] = {
            "application_name": process_name(program),
            "search_path": search_path,
            "lock_timeout": str(int(seconds * 1000 / RENEWALS)),
            "statement_timeout": milliseconds,
            "tcp_user_timeout": milliseconds,
        }
        return await asyncpg.connect(
            url, timeout=seconds, command_timeout=seconds, server_settings=settings, **writer_options(url)
        )

    return connect


@dataclass(frozen=True, slots=True)
class Member:
    number: int
    name: str
    """Its host and process."""
    leaving: bool


class LeaseUser(Protocol):
    """Does what leases allow. Calls come from the event loop of the keeper."""

    def taken(self, names: Sequence[str]) -> None:
        """Begin what these leases allow."""

    async def end(self, name: str) -> None:
        """Return when the work under this lease has ended. It is given back then, or is lost already."""

    def heard(self, notice: str) -> None:
        """Another member tells something."""

    async def add_wanted(self, connection: Connection[Record]) -> bool:
        """Add leases that should exist and do not. Returns whether there were any."""


@dataclass(slots=True)
class LeaseCounts:
    """Totals since the start."""

    taken: int = 0
    taken_over: int = 0
    """Leases whose holder had not given them back."""
    handed_over: int = 0
    """Leases that this member gave to one that can do what it was unable to do."""
    lapsed: int = 0
    """Times that this member lost all its leases because it could not renew them."""
    latest_renewal_seconds: float = 0.0
    """How long the latest renewal took."""


class LeaseKeeper:
    """The leases of this process. It runs inside `async with`."""

    def __init__(
        self,
        connect: Connect,
        channel: str,
        user: LeaseUser,
        *,
        seconds: float,
        name: str,
        clock: Callable[[], float] = own_clock,
    ) -> None:
        """`channel` begins the names of the channels on which members hear of changes. Raises nothing."""
        self._connect = connect
        self._channel = channel
        self._user = user
        self._seconds = seconds
        self._name = name
        self._clock = clock
        self._number: int | None = None
        self._deadline = NEVER
        """The time, by our own clock, from which nothing is done under a lease."""
        self._latest = NEVER
        """The latest time that our own clock has shown."""
        self._held: dict[str, int] = {}
        """Fences by the names of our leases, those that are ending too."""
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()
        """Leases to be given back."""
        self._heirs: dict[str, int] = {}
        """Members that get leases which are ending."""
        self._seen: dict[str, SeenLease] = {}
        self._unable: dict[str, frozenset[int]] = {}
        """Members that are unable, by the lease, at the latest look."""
        self._to_say: dict[str, bool] = {}
        """Leases for which this member is unable or able again, to be told to others."""
        self._look_at = 0.0
        self._members: dict[int, Member] = {}
        self._leaving = False
        self._changed = True
        self._awake = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.counts: Final = LeaseCounts()
        self.settled: Final = asyncio.Event()
        """Set when this member has seen the leases once and has taken its share."""

    async def __aenter__(self) -> LeaseKeeper:
        self._task = asyncio.create_task(self._keep(), name="leases")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Give all leases back as soon as what they allow has ended, and leave. Others begin meanwhile."""
        self._leaving = True
        for name in list(self._held):
            self._end(name)
        self._wake()
        assert self._task is not None
        left, _ = await asyncio.wait([self._task], timeout=self._seconds)
        if not left:
            logger.warning(
                "leases could not be given back in time: others take them over when they have expired"
            )
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._lapse("this process stops")
        if self._ending:
            await asyncio.wait(self._ending.values(), timeout=self._seconds)

    # What may be done now

    @property
    def number(self) -> int | None:
        """Our number, or None while we are not a member."""
        return self._number

    @property
    def is_member(self) -> bool:
        return self.number is not None and self._in_time()

    def holds(self, name: str) -> bool:
        """Whether this process may do now what a lease allows."""
        is_over = name in self._ending or name in self._ended
        return name in self._held and not is_over and self._in_time()

    def fence(self, name: str) -> int | None:
        """Return the fence for writes under a lease, also while its work ends. None if it is not ours."""
        return self._held.get(name) if self._in_time() else None

    def _in_time(self) -> bool:
        """Whether our leases have not ended. A clock that went back does not know, so they have."""
        now = self._clock()
        if now < self._latest:
            self._deadline = NEVER
        else:
            self._latest = now
        return now < self._deadline

    def holder_of(self, name: str) -> int | None:
        """Return the number of the member that held a lease at the latest look; None if there was none."""
        seen = self._seen.get(name)
        return None if seen is None or seen.holder not in self._members else seen.holder

    def unable(self) -> dict[str, frozenset[int]]:
        """Return leases that some members are unable for, and these members, at the latest look."""
        return dict(self._unable)

    def say_unable(self, name: str, *, unable: bool) -> None:
        """Tell others whether this member is unable to do what a lease allows, whoever has it."""
        if unable != (self._number in self._unable.get(name, ())):
            self._to_say[name] = unable
            self._wake()
        else:
            self._to_say.pop(name, None)

    def hand_over(self, name: str, member: int) -> None:
        """End what a lease allows, and give it to another member."""
        if self.holds(name) and member in self._members:
            self._heirs[name] = member
            self._end(name)

    @property
    def held(self) -> list[str]:
        return [name for name in self._held if self.holds(name)]

    @property
    def members(self) -> list[Member]:
        """All members at the latest look."""
        return list(self._members.values())

    def shares(self) -> dict[int, dict[str, int]]:
        """Return how many leases of each kind every member held at the latest look."""
        shares: dict[int, dict[str, int]] = {number: {} for number in self._members}
        for seen in self._seen.values():
            if seen.holder in shares:
                share = shares[seen.holder]
                share[seen.kind] = share.get(seen.kind, 0) + 1
        return shares

    @property
    def free(self) -> int:
        """The number of leases without a living holder at the latest look."""
        return sum(self.holder_of(name) is None for name in self._seen)

    def channel_of(self, number: int) -> str:
        return f"{self._channel}_{number}"

    def look_soon(self) -> None:
        """Look at the tables at once, because leases are wanted that may not exist."""
        self._changed = True
        self._wake()

    # Keeping them

    def _wake(self) -> None:
        self._awake.set()

    async def _keep(self) -> None:
        await in_sessions(
            self._connect,
            self._session,
            "leases cannot be renewed",
            self._seconds / RENEWALS,
            lambda: self._leaving and not self._held,
        )

    async def _session(self, connection: Connection[Record]) -> None:
        """Renew and share leases until we have left."""
        await connection.add_listener(self._channel, self._heard)
        if self.number is not None:
            await connection.add_listener(self.channel_of(self.number), self._heard)
        self._changed = True
        while True:
            self._awake.clear()
            await self._renew(connection)
            await self._give_back(connection)
            await self._say(connection)
            if self._leaving and not self._held:
                await connection.execute(_LEAVE, self.number)
                await self._tell(connection)
                return
            await self._look(connection)
            self.settled.set()
            if self._ended or self._changed:
                continue
            try:
                async with asyncio.timeout(self._seconds / RENEWALS):
                    await self._awake.wait()
            except TimeoutError:
                pass

    async def _renew(self, connection: Connection[Record]) -> None:
        """Renew our membership, or join. Our time counts from before the question."""
        began = self._clock()
        if not await self._is_renewed(connection):
            if self._leaving:
                return
            began = self._latest = self._clock()
            await self._join(connection)
        self._deadline = began + self._seconds * (1 - MARGIN)
        now = self._clock()
        self.counts.latest_renewal_seconds = now - began
        if now >= self._deadline:
            self._lapse("the renewal took too long")
            return
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.get_running_loop().call_later(self._deadline - now, self._look_at_clock)

    async def _is_renewed(self, connection: Connection[Record]) -> bool:
        number = self._number
        if number is None:
            return False
        if not self._in_time():
            self._lapse("they were not renewed in time, or our clock went back")
        elif not await connection.fetchval(_RENEW, number, self._seconds, self._leaving):
            self._lapse("others have taken this process for gone")
        return number == self._number

    async def _join(self, connection: Connection[Record]) -> None:
        number: int = await connection.fetchval(_JOIN, self._name, self._seconds)
        self._number = number
        await connection.add_listener(self.channel_of(number), self._heard)
        await self._tell(connection)
        logger.info("this process is instance %d", number)

    def _look_at_clock(self) -> None:
        """Give everything up at the deadline, because no renewal has come."""
        if self.number is None:
            return
        left = self._deadline - self._clock()
        if left > 0 and self._in_time():
            self._watch = asyncio.get_running_loop().call_later(left, self._look_at_clock)
        else:
            self._lapse("the database could not be reached in time")

    def _lapse(self, why: str) -> None:
        """Forget all leases and our number. What they allowed ends as soon as it can."""
        if self.number is None:
            return
        if self._held:
            self.counts.lapsed += 1
            logger.warning("%d leases are lost: %s", len(self._held), why)
        names = list(self._held)
        self._number, self._deadline = None, NEVER
        self._held.clear()
        self._ended.clear()
        self._heirs.clear()
        self._to_say.clear()
        self._unable.clear()
        self._changed = True
        for name in names:
            self._end(name)
        self._wake()

    def _end(self, name: str) -> None:
        """Begin to end what a lease allows."""
        if name not in self._ending and name not in self._ended:
            self._ending[name] = asyncio.create_task(self._end_one(name), name=f"end of {name}")

    async def _end_one(self, name: str) -> None:
        try:
            await self._user.end(name)
        except Exception:
            logger.exception("could not stop the work that the lease %s allows", name)
        finally:
            del self._ending[name]
            if name in self._held:
                self._ended.add(name)
            self._wake()

    async def _give_back(self, connection: Connection[Record]) -> None:
        if not self._ended:
            return
        names = list(self._ended)
        heirs = {name: self._heirs[name] for name in names if name in self._heirs}
        if heirs:
            given = await connection.fetch(_HAND_OVER, self.number, list(heirs), list(heirs.values()))
            self.counts.handed_over += len(given)
            logger.info("handed over %d leases whose work this instance cannot do", len(given))
        await connection.execute(_GIVE_BACK, self.number, names)
        for name in names:
            self._ended.discard(name)
            self._held.pop(name, None)
            self._heirs.pop(name, None)
        logger.info("gave %d leases back", len(names) - len(heirs))
        self._changed = True
        await self._tell(connection)

    async def _say(self, connection: Connection[Record]) -> None:
        """Write what this member is unable for, or no longer."""
        said, self._to_say = self._to_say, {}
        if not said or self.number is None or self._leaving:
            return
        await connection.execute(_SAY_UNABLE, self.number, [name for name, unable in said.items() if unable])
        await connection.execute(
            _SAY_ABLE, self.number, [name for name, unable in said.items() if not unable]
        )
        self._changed = True
        await self._tell(connection)

    async def _look(self, connection: Connection[Record]) -> None:
        """Remove members that are late, and take our share of what is free."""
        await connection.execute(_REMOVE_LATE)
        members = {
            row["number"]: Member(row["number"], row["name"], row["leaving"])
            for row in await connection.fetch(_MEMBERS)
        }
        if not (self._changed or members != self._members or self._clock() >= self._look_at):
            return
        self._changed = False
        self._members = members
        if await self._user.add_wanted(connection):
            await self._tell(connection)  # they may be another's share
        self._seen = {
            row["name"]: SeenLease(row["kind"], row["holder"], row["fence"])
            for row in await connection.fetch(_LEASES)
        }
        await self._see_unable(connection)
        self._look_at = self._clock() + LOOK_SECONDS
        if self.number is None or self._leaving:
            return
        self._adopt()
        staying = {each.number for each in members.values() if not each.leaving}
        share = share_of(self.number, staying, self._seen, self._unable)
        for name in share.give:
            if name in self._held:
                self._end(name)
        if share.take:
            await self._take(connection, share.take)

    async def _see_unable(self, connection: Connection[Record]) -> None:
        rows = [(row["lease"], row["member"]) for row in await connection.fetch(_UNABLE)]
        if any(member not in self._members for _, member in rows):
            await connection.execute(_REMOVE_GONE)
        unable: dict[str, set[int]] = {}
        for lease, member in rows:
            if member in self._members:
                unable.setdefault(lease, set()).add(member)
        self._unable = {lease: frozenset(members) for lease, members in unable.items()}

    def _adopt(self) -> None:
        """Begin what leases allow that were handed over to us, or that we took when the connection broke."""
        names = [
            name
            for name, seen in self._seen.items()
            if seen.holder == self.number and name not in self._held and name not in self._ending
        ]
        self._held.update({name: self._seen[name].fence for name in names})
        if names:
            self._user.taken(names)

    async def _take(self, connection: Connection[Record], names: Collection[str]) -> None:
        number = self.number
        possible = [name for name in names if name not in self._ending]
        fences = [self._seen[name].fence for name in possible]
        rows = await connection.fetch(_TAKE, number, possible, fences)
        if len(rows) < len(names):
            # Others were faster, a transaction of the former holder has not ended, or ours have not ended here.
            self._look_at = 0.0
        if number != self.number or not rows:  # we have lapsed meanwhile: others find them
            return
        for row in rows:
            name, fence = row["name"], row["fence"]
            self._held[name] = fence
            self._seen[name] = SeenLease(self._seen[name].kind, number, fence)
        over = sum(row["before"] is not None for row in rows)
        self.counts.taken += len(rows)
        self.counts.taken_over += over
        logger.info("took %d leases, %d of them over from instances that are gone", len(rows), over)
        self._user.taken([row["name"] for row in rows])
        await self._tell(connection)

    async def _tell(self, connection: Connection[Record]) -> None:
        await connection.execute("SELECT pg_notify($1, $2)", self._channel, f"{_CHANGED} {self.number}")

    def _heard(self, _connection: object, _process: int, channel: str, payload: object) -> None:
        notice = str(payload)
        if channel != self._channel:
            self._user.heard(notice)
        elif notice != f"{_CHANGED} {self.number}":
            self._changed = True
            self._wake()
