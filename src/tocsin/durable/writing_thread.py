"""A thread that does one thing after the other for an event loop.

An executor of the standard library makes two futures with locks for each piece of work, which costs more than a write
of a few messages into the system's cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple, TypeAlias

WhenDone: TypeAlias = Callable[[BaseException | None], None]
"""Gets the exception that the work ended with, or None."""


class _Work(NamedTuple):
    do: Callable[[], None]
    when_done: WhenDone
    loop: asyncio.AbstractEventLoop


class WritingThread:
    """The thread starts with the first piece of work, and ends in `close`."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._waiting: Final[SimpleQueue[_Work | None]] = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, work: Callable[[], None], when_done: WhenDone) -> None:
        """Do the work in the thread, then call `when_done` in the running event loop."""
        if self._thread is None:
            # A daemon, so that a process which must end does not wait for a disk that does not answer.
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put(_Work(work, when_done, asyncio.get_running_loop()))

    def close(self) -> None:
        """Wait until all work is done, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            failure: BaseException | None = None
            try:
                work.do()
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                work.loop.call_soon_threadsafe(work.when_done, failure)
