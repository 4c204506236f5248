"""Where the changes of an NTF store in memory go to become durable."""

from __future__ import annotations

from typing import Protocol

from tocsin.ntf_router.store.logs.change_log import DirectChange
from tocsin.ntf_router.store.logs.store_log import NtfStoreChange


class NtfJournal(Protocol):
    """All methods but `commit` take note of what was changed in memory. They never fail: `commit` tells."""

    def append(self, change: NtfStoreChange) -> None: ...

    def came(self, subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> None:
        """A notification, which is pending. It replaces the last one of its subscription."""

    def ended(self, subscription_id: bytes, outcome: str) -> None:
        """The last notification of a subscription is not pending any more."""

    def registered(self, token_id: bytes, at: int) -> None: ...

    def cron_sent(self, token_id: bytes, at: int) -> None: ...

    def direct(self, change: DirectChange) -> None: ...

    async def commit(self) -> None:
        """Returns when all that was noted before is durable; raises StoreError if that is impossible."""


class NoNtfJournal:
    """For a router that forgets everything when it stops, and while a store is being read from its files."""

    def append(self, change: NtfStoreChange) -> None:
        pass

    def came(self, subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> None:
        pass

    def ended(self, subscription_id: bytes, outcome: str) -> None:
        pass

    def registered(self, token_id: bytes, at: int) -> None:
        pass

    def cron_sent(self, token_id: bytes, at: int) -> None:
        pass

    def direct(self, change: DirectChange) -> None:
        pass

    async def commit(self) -> None:
        pass
