"""A store that fails for a while: each method so many times, before or after it has done its work."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import NtfStore


class FailingStore:
    """Wraps a store. `methods` are those that fail; each `times` times."""

    def __init__(
        self, store: NtfStore, methods: Collection[str], times: int = 2, *, after_the_work: bool = False
    ) -> None:
        self._store = store
        self._left = Counter(dict.fromkeys(methods, times))
        self._after = after_the_work
        self.failed: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        """Calls whose results were returned."""

    def fail(self, method: str, times: int) -> None:
        """From now on so many times."""
        self._left[method] = times

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name == "cron_due":
            return self._pages(name, method)
        return self._call(name, method) if inspect.iscoroutinefunction(method) else method

    def _fails(self, name: str) -> bool:
        if self._left[name] <= 0:
            return False
        self._left[name] -= 1
        self.failed[name] += 1
        return True

    def _call(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **named: Any) -> Any:
            fails = self._fails(name)
            if fails and not self._after:
                raise StoreError(f"{name} cannot be done, for a test")
            result = await method(*arguments, **named)
            self.done[name] += not fails
            if fails:
                raise StoreError(f"{name} is done and nobody knows it, for a test")
            return result

        return called

    def _pages(
        self, name: str, method: Callable[..., AsyncIterator[Any]]
    ) -> Callable[..., AsyncIterator[Any]]:
        async def pages(*arguments: Any) -> AsyncIterator[Any]:
            fails = self._fails(name)
            if fails and not self._after:
                raise StoreError(f"{name} cannot be done, for a test")
            async for page in method(*arguments):
                yield page
            if fails:
                raise StoreError(f"{name} broke off, for a test")

        return pages
