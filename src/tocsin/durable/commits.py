"""Commits of a store, and what happens while its disk or database has trouble.

Theory of operation. `commit` starts a write of all changes that wait or, if one is in progress, waits for the next
one, which serves all that wait. If a write has served several, more will come, and a write costs about as much for
many as for one: so the next one begins a moment later. Each committer is woken once, when its own changes are durable.

A write that cannot be done now is tried again, after growing delays, until it succeeds. So a full disk or a restarted
database passes without a restart of the router, and nothing that was changed in memory is lost.

From the first failed attempt on, or when a write takes long, the store has trouble: `trouble` says which. Its users
then make no new changes, so that what waits stays bounded, but wait in `ready`. `ready` and `commit` wait until the
trouble has lasted for the patience; then they raise StoreUnavailable until it has passed.

A failure that no further attempt can mend, such as another router in our place, ends the store: `lost` returns, and the
process should end.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from tocsin.errors import StoreError, StoreUnavailable

SLOW_SECONDS: Final = 2.0
"""A write that takes longer is trouble."""
PATIENCE: Final = 10.0
GATHER_SECONDS: Final = 0.001
"""Pause after a write that served several committers."""
SEVERAL: Final = 4
FIRST_DELAY: Final = 0.05
LAST_DELAY: Final = 2.0

logger = logging.getLogger(__name__)


def next_delay(delay: float) -> float:
    """Return the pause before the next attempt; `delay` was the last one, or 0."""
    return min(max(delay * 2, FIRST_DELAY), LAST_DELAY)


class Durability(Protocol):
    """Makes changes durable: a journal, or a store that has one."""

    @property
    def appended(self) -> int:
        """The number of changes so far."""

    @property
    def durable(self) -> int:
        """How many of them, counted from the first, are durable."""

    @property
    def uncommitted(self) -> bool:
        """Whether there are changes that a commit could make durable."""

    @property
    def trouble(self) -> StoreError | None:
        """Why changes do not become durable at the moment, or None if they do. Make no changes meanwhile."""

    async def ready(self) -> None:
        """Return when there is no trouble. Raises StoreError if that takes too long."""

    async def commit(self) -> None:
        """Return when every change made before this call is durable. Raises StoreError if that fails.

        Raises StoreUnavailable if it takes too long; the changes may become durable later.
        """

    def wake_when_durable(self, wake: Callable[[], object]) -> None:
        """Call back when every change made before this call is durable, and before that if `commit` begins to raise."""

    async def until_durable(self) -> None:
        """Return when every change made before this call is durable, however long that takes.

        Raises StoreError if it will never be.
        """


class _Committer(NamedTuple):
    target: int
    """The number of the last change it waits for."""
    wake: Callable[[], object]


class Commits(ABC):
    """Counts appended changes and durable ones. Subclasses write them. Belongs to one event loop."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience: Final = patience
        self._appended = 0
        self._durable = 0
        self._failure: StoreError | None = None
        """Why nothing will be written again."""
        self._trouble: StoreUnavailable | None = None
        self._impatient = False
        self._news: asyncio.Event | None = None
        """Set when the write in progress has ended, and when the patience has. None if there is no write."""
        self._committers: deque[_Committer] = deque()
        """In the order of their targets, except for those that came again after trouble."""
        self._next_write: asyncio.Handle | None = None
        self._not_before = 0.0
        """Loop time at which the next write may begin."""
        self._began_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._losing_patience: asyncio.TimerHandle | None = None
        self._lost: asyncio.Event | None = None
        self._was_lost = False

    @property
    def appended(self) -> int:
        """The number of changes so far."""
        return self._appended

    @property
    def durable(self) -> int:
        """How many of them, counted from the first, are durable."""
        return self._durable

    @property
    def uncommitted(self) -> bool:
        """Whether a change is not durable yet. Always true once a write has failed for good."""
        return self._durable < self._appended or self._failure is not None

    @property
    def trouble(self) -> StoreError | None:
        """Why changes do not become durable at the moment, or None if they do."""
        return self._failure or self._trouble

    async def ready(self) -> None:
        """Return when the store has no trouble. Raises StoreError if that takes too long."""
        while self._failure is not None or self._trouble is not None:
            self._raise_failure()
            self._raise_impatience()
            assert self._news is not None
            await self._news.wait()

    async def commit(self) -> None:
        """Return when every change appended before is durable. Raises StoreError if that fails or takes too long.

        After StoreUnavailable the changes may still become durable.
        """
        target = self._appended
        while self._durable < target or self._failure is not None:
            self._raise_failure()
            self._raise_impatience()
            await self._woken(target)  # a cancelled committer leaves the write to the others

    def wake_when_durable(self, wake: Callable[[], object]) -> None:
        """Call back when every change appended before is durable, and before that if `commit` begins to raise.

        For a task that waits for something else as well. Without trouble it needs no task and no future of its own.
        """
        if not self.uncommitted or self._failure is not None:
            asyncio.get_running_loop().call_soon(wake)
            return
        self._register(self._appended, wake)
        if self._impatient:
            asyncio.get_running_loop().call_soon(wake)

    async def until_durable(self) -> None:
        """Return when every change appended before is durable, however long that takes.

        Raises StoreError if it will never be.
        """
        target = self._appended
        while self._durable < target or self._failure is not None:
            self._raise_failure()
            await self._woken(target)

    async def lost(self) -> StoreError:
        """Return when the store has failed for good: the reason."""
        if self._lost is None:
            self._lost = asyncio.Event()
        if not self._was_lost:
            await self._lost.wait()
        return self._failure or StoreError("the store has failed")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StoreError(str(self._failure)) from self._failure

    def _raise_impatience(self) -> None:
        if self._impatient:
            raise StoreUnavailable(str(self._trouble)) from self._trouble

    def _woken(self, target: int) -> asyncio.Future[None]:
        """Return a future that is done when the changes up to this number are durable, or something else is to know."""
        woken = asyncio.get_running_loop().create_future()
        self._register(target, partial(_set_done, woken))
        return woken

    def _register(self, target: int, wake: Callable[[], object]) -> None:
        """Wake the committer at its time, and see that a write will begin."""
        self._committers.append(_Committer(target, wake))
        if self._news is None and self._next_write is None:
            loop = asyncio.get_running_loop()
            if self._not_before > loop.time():
                self._next_write = loop.call_at(self._not_before, self._begin)
            else:
                self._begin()

    def _wake(self, upto: int) -> int:
        """Wake the committers that wait for changes up to this number. Returns how many they were."""
        committers, count = self._committers, 0
        while committers and committers[0].target <= upto:
            committers.popleft().wake()
            count += 1
        return count

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._news, self._began_at = asyncio.Event(), loop.time()
        self._next_write = None
        if self._watch is None:
            self._watch = loop.call_later(SLOW_SECONDS, self._look)
        self._start_write()

    @abstractmethod
    def _start_write(self) -> None:
        """Write all changes that wait. Then call `_written`, or `_attempt_failed` and try again, or `_fail`."""

    # For subclasses

    def _written(self, upto: int) -> None:
        """Note that changes are durable, up to this number."""
        self._durable = upto
        if self._trouble is not None:
            logger.warning("the store works again, after: %s", self._trouble)
        self._trouble, self._impatient = None, False
        if self._losing_patience is not None:
            self._losing_patience.cancel()
            self._losing_patience = None
        self._tell(None)
        loop, served = asyncio.get_running_loop(), self._wake(upto)
        self._not_before = loop.time() + GATHER_SECONDS if served >= SEVERAL else 0.0
        if self._committers and self._failure is None:
            self._next_write = loop.call_at(self._not_before, self._begin)

    def _attempt_failed(self, error: StoreUnavailable) -> None:
        """Note a failed attempt of a write that is tried again."""
        if self._trouble is None or str(self._trouble) != str(error):
            logger.error("the store has trouble; it is tried again until it works: %s", error)
        if self._trouble is None:
            loop = asyncio.get_running_loop()
            self._losing_patience = loop.call_later(self._patience, self._lose_patience)
        self._trouble = error

    def _fail(self, error: StoreError) -> None:
        """Note that nothing can be written again."""
        logger.critical("the store has failed for good: %s", error)
        self._end(error)
        self._was_lost = True
        if self._lost is not None:
            self._lost.set()

    def _end(self, error: StoreError) -> None:
        """Let every later commit fail."""
        self._failure = self._failure or error
        for timer in (self._watch, self._losing_patience, self._next_write):
            if timer is not None:
                timer.cancel()
        self._watch = self._losing_patience = self._next_write = None
        self._tell(None)
        self._wake(self._appended)

    def _tell(self, next_news: asyncio.Event | None) -> None:
        news, self._news = self._news, next_news
        if news is not None:
            news.set()

    def _lose_patience(self) -> None:
        self._impatient = True
        self._tell(asyncio.Event())
        for committer in self._committers:  # they stay, because their changes may still become durable
            committer.wake()

    def _look(self) -> None:
        """Look whether the write in progress takes too long. One timer for all writes costs nothing."""
        self._watch = None
        if self._news is None:
            return
        loop = asyncio.get_running_loop()
        if self._trouble is None and loop.time() - self._began_at >= SLOW_SECONDS:
            self._attempt_failed(
                StoreUnavailable(
                    f"a write has not ended within {SLOW_SECONDS:.0f} seconds: the disk or database is slow"
                )
            )
        self._watch = loop.call_later(SLOW_SECONDS / 4, self._look)


def _set_done(woken: asyncio.Future[None]) -> None:
    if not woken.done():  # done: its task was cancelled
        woken.set_result(None)
