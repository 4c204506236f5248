"""The last notifications of tokens in memory, which of them are pending, and what became of all the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from typing import Final

from tocsin.ntf_router.store.memory.token_table import KeptNotification, KeptToken
from tocsin.ntf_router.store.records import ACCEPTED, KEPT_NOTIFICATIONS, Accounting


class NotificationTable:
    """Notifications are in their tokens; here is what has to be known of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self.received = 0
        self.accepted = 0
        self.superseded = 0
        self.failed: Final[dict[str, int]] = {}
        self._pending: Final[dict[bytes, int]] = {}
        """How many a token has; only tokens that have some."""
        self._pending_count = 0
        self.before_change: Callable[[KeptToken], None] | None = None
        """Called with a token before its last notifications change: for a snapshot that takes its time."""
        self._order: list[bytes] = []

    def put(self, token: KeptToken, row: int, new: KeptNotification) -> KeptNotification | None:
        """As the queue's last one; returns the one before."""
        if self.before_change is not None:
            self.before_change(token)
        if token.last is None:
            token.last = {}
        before = token.last.pop(row, None)
        token.last[row] = new
        self.count += before is None
        was_pending = before is not None and before.pending
        if new.pending and not was_pending:
            token_id = token.record.token_id
            self._pending[token_id] = self._pending.get(token_id, 0) + 1
            self._pending_count += 1
        elif was_pending and not new.pending:
            self._less_pending(token)
        self.prune(token)
        return before

    def receive(self, token: KeptToken, row: int, new: KeptNotification) -> KeptNotification | None:
        """A new one, which is pending; returns the one that it supersedes."""
        before = self.put(token, row, new)
        self.received += 1
        if before is None or not before.pending:
            return None
        self.superseded += 1
        return before

    def settle(self, token: KeptToken, last: KeptNotification, outcome: str) -> None:
        """`last` is pending. `prune` is left to the caller."""
        if self.before_change is not None:
            self.before_change(token)
        last.pending = False
        self._less_pending(token)
        self.count_end(outcome)

    def count_end(self, outcome: str) -> None:
        if outcome == ACCEPTED:
            self.accepted += 1
        else:
            self.failed[outcome] = self.failed.get(outcome, 0) + 1

    def forget(self, token: KeptToken, row: int) -> None:
        """The row is about to go; what was pending is settled before."""
        if self.before_change is not None:
            self.before_change(token)
        if token.last is not None and token.last.pop(row, None) is not None:
            self.count -= 1
            if not token.last:
                token.last = None

    def prune(self, token: KeptToken) -> None:
        """Keeps what is pending and the newest others."""
        if token.last is None or len(token.last) <= KEPT_NOTIFICATIONS:
            return
        if self.before_change is not None:
            self.before_change(token)
        spare = len(token.last) - KEPT_NOTIFICATIONS
        for row in [row for row, last in token.last.items() if not last.pending][:spare]:
            del token.last[row]
            self.count -= 1

    def has_pending(self, token_id: bytes) -> bool:
        return token_id in self._pending

    def with_pending(self) -> list[bytes]:
        return list(self._pending)

    def page_with_pending(self, after: bytes | None, limit: int) -> list[bytes]:
        """In the order of ids. Tokens that got something pending since the first page may be missing."""
        if after is None or not self._order:
            self._order = sorted(self._pending)
        begin = 0 if after is None else bisect_right(self._order, after)
        found: list[bytes] = []
        for token_id in islice(self._order, begin, None):
            if token_id in self._pending:
                found.append(token_id)
                if len(found) == limit:
                    return found
        self._order = []
        return found

    def accounting(self) -> Accounting:
        return Accounting(
            self.received, self.accepted, self.superseded, dict(self.failed), self._pending_count
        )

    def _less_pending(self, token: KeptToken) -> None:
        token_id = token.record.token_id
        self._pending_count -= 1
        left = self._pending[token_id] - 1
        if left:
            self._pending[token_id] = left
        else:
            del self._pending[token_id]
