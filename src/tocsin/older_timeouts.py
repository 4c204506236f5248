"""Makes `asyncio.timeout` of Python 3.11.0 to 3.11.3 right, as later versions have it.

A task group whose task fails at the end leaves a request to cancel behind (in all of 3.11). In a task with such a
request, time-outs of these versions raise CancelledError instead of TimeoutError.
"""

from __future__ import annotations

from asyncio import CancelledError, timeouts
from types import TracebackType
from typing import Any


def mend_timeouts() -> None:
    """Count requests to cancel from the beginning of a time-out on."""
    kind_of_timeout: Any = timeouts.Timeout
    enter, leave = kind_of_timeout.__aenter__, kind_of_timeout.__aexit__

    async def mended_enter(self: Any) -> Any:
        await enter(self)
        self._cancelling = self._task.cancelling()
        return self

    async def mended_leave(
        self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave(self, kind, error, trace)  # raises TimeoutError if there was no request before
        if self.expired() and kind is CancelledError and self._task.cancelling() <= self._cancelling:
            raise TimeoutError from error

    kind_of_timeout.__aenter__, kind_of_timeout.__aexit__ = mended_enter, mended_leave
