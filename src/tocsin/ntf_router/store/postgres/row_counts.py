"""Numbers of tokens and subscriptions in PostgreSQL, counted once and then kept, so that no command counts a table.

Theory of operation. One router alone adds rows (`SchemaOwner`), so it knows their number if it counts them at its start
and notes each change after its commit. A place is taken before a row is added and given back if it was not, so that
commands at the same time do not add more than the limit. When a commit's outcome is not known, or an operator removed
rows with SQL, the number may be too high. So it is counted again at times, after such a failure and while the
limit is reached.

Instances of a fleet add rows besides each other (`shared`). Each counts again whenever it looks, if the table's
statistics say that the limit is near. Between two looks they may add some rows too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tocsin.errors import StoreFull
from tocsin.ntf_router.store.postgres.pools import NtfPool, Proxy
from tocsin.ntf_router.store.records import RowLimit, RowLimits

# Two statements: the second one must see what was committed while the first one waited.
_LOCK_TOKEN: Final = "SELECT true FROM tokens WHERE token_id = $1 FOR NO KEY UPDATE"  # noqa: S105
_COUNT_OF_TOKEN: Final = """
    SELECT count(*) FROM (SELECT FROM subscriptions WHERE token_id = $1 LIMIT $2) AS found
"""  # noqa: S105
NEAR: Final = 0.5
"""The share of a limit from which on instances of a fleet count exactly."""
LARGE: Final = 100_000
"""Rows from which on a start does not wait until they are counted."""
_ESTIMATE: Final = "SELECT reltuples::bigint FROM pg_class WHERE oid = $1::text::regclass"


@dataclass(slots=True)
class Addition:
    """A row that is being added."""

    has_room: bool
    added: bool = False
    """To be set when the transaction is committed."""


@dataclass(slots=True)
class Removal:
    """Rows that are being removed."""

    tokens: int = 0
    subscriptions: int = 0


class KeptCount:
    """The number of rows of one table: never too low, as long as only this process adds rows."""

    def __init__(self, table: str) -> None:
        self._table: Final = table
        self._statement: Final = f"SELECT count(*) FROM {table}"  # noqa: S608
        self.most: int | None = None
        self.counted = 0
        """How often the rows were counted."""
        self._rows = 0
        self._under_way = 0
        """Additions without an outcome yet."""
        self._added = 0
        """Rows that were added since the last count began."""
        self._doubtful = False
        self._was_full = False

    async def count(self, pool: NtfPool) -> None:
        """Count the rows. Those that are added meanwhile may count twice. Raises StoreError."""
        self._added, self._doubtful, self._was_full = 0, False, False
        try:
            row = await pool.fetchrow(self._statement)
        except BaseException:
            self._doubtful = True
            raise
        assert row is not None
        self._rows = row[0] + self._added
        self.counted += 1

    async def estimate_or_count(self, pool: NtfPool) -> None:
        """Learn the number at a start. A large table far from its limit is estimated, and counted later.

        Raises StoreError.
        """
        row = None if self.most is None else await pool.fetchrow(_ESTIMATE, self._table)
        if row is not None and self.most is not None and LARGE <= row[0] < NEAR * self.most:
            self._rows, self._doubtful = row[0], True
        else:
            await self.count(pool)

    async def count_if_doubtful(self, pool: NtfPool) -> None:
        """Count again if the number may be too high, and that matters. Raises StoreError."""
        if self.most is not None and (self._doubtful or self._was_full):
            await self.count(pool)

    async def count_shared(self, pool: NtfPool) -> None:
        """Learn of rows that other instances have added or removed. Raises StoreError."""
        if self.most is None:
            return
        row = await pool.fetchrow(_ESTIMATE, self._table)
        if row is not None and max(row[0], self._rows) >= NEAR * self.most:
            await self.count(pool)
        elif row is not None and row[0] >= 0:
            self._rows = row[0]

    @contextmanager
    def adding(self) -> Iterator[Addition]:
        """Take a place for a row, if there is one. It is kept if the block sets `added`, or fails."""
        if self.most is None:
            yield Addition(has_room=True)
            return
        addition = Addition(has_room=self._rows + self._under_way < self.most)
        self._was_full |= not addition.has_room
        self._under_way += addition.has_room
        try:
            yield addition
        except StoreFull:
            raise
        except BaseException:
            self._doubtful = addition.added = True
            raise
        finally:
            self._under_way -= addition.has_room
            self._rows += addition.added
            self._added += addition.added

    def removed(self, rows: int, counted: int) -> None:
        """Note that rows are gone. `counted` is the number of counts when their removal began.

        A count that ended since then may have missed them already.
        """
        if counted == self.counted:
            self._rows -= rows

    def doubt(self) -> None:
        """Note that nobody knows whether rows are gone."""
        self._doubtful = True


class RowCounts:
    """The numbers of tokens and subscriptions, and their limits."""

    def __init__(self) -> None:
        self.tokens: Final = KeptCount("tokens")
        self.subscriptions: Final = KeptCount("subscriptions")
        self._of_token: int | None = None
        self.shared = False
        """Other instances add and remove rows, too."""

    async def limit_to(self, limits: RowLimits, pool: NtfPool) -> None:
        self.tokens.most, self.subscriptions.most = limits.tokens, limits.subscriptions
        self._of_token = limits.subscriptions_of_token
        await self.tokens.estimate_or_count(pool)
        await self.subscriptions.estimate_or_count(pool)

    @property
    def most_of_token(self) -> int | None:
        """The limit of the subscriptions of one token."""
        return self._of_token

    async def check_room(self, connection: Proxy, token_id: bytes, addition: Addition) -> bool:
        """Check that the token may get a subscription in this transaction, and lock the token.

        Returns whether the token exists. Raises StoreFull.
        """
        if not await connection.fetchval(_LOCK_TOKEN, token_id):
            return False
        if self._of_token is None:
            return True
        if await connection.fetchval(_COUNT_OF_TOKEN, token_id, self._of_token) >= self._of_token:
            raise StoreFull(RowLimit.SUBSCRIPTIONS_OF_TOKEN)
        if not addition.has_room:
            raise StoreFull(RowLimit.SUBSCRIPTIONS)
        return True

    @contextmanager
    def removing(self) -> Iterator[Removal]:
        """Remove rows in the block, which sets their numbers after the commit."""
        counted = self.tokens.counted, self.subscriptions.counted
        removal = Removal()
        try:
            yield removal
        except BaseException:
            self.tokens.doubt()
            self.subscriptions.doubt()
            raise
        self.tokens.removed(removal.tokens, counted[0])
        self.subscriptions.removed(removal.subscriptions, counted[1])

    async def count_if_doubtful(self, pool: NtfPool) -> None:
        """Raises StoreError."""
        if self.shared:
            await self.tokens.count_shared(pool)
            await self.subscriptions.count_shared(pool)
        await self.tokens.count_if_doubtful(pool)
        await self.subscriptions.count_if_doubtful(pool)
