"""Device tokens in memory, by id, by number and by device token."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Self

import msgspec

from tocsin.ntf_router.store.records import ACCEPTED, KEPT_NOTIFICATIONS, Accounting, TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import item_text, sealed_meta_of


class KeptNotification(msgspec.Struct, gc=False):
    """A queue's last notification. Only its text is kept, made once, because several pushes carry it."""

    received_at: float
    nonce: bytes
    item: bytes
    """The text without its SMP router, which many queues share."""
    pending: bool

    @classmethod
    def of(
        cls, notifier_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes, *, pending: bool
    ) -> Self:
        item = item_text(notifier_id, int(received_at), nonce, sealed_meta)
        return cls(received_at, nonce, item, pending)

    @property
    def sealed_meta(self) -> bytes:
        return sealed_meta_of(self.item)


@dataclass(slots=True)
class KeptToken:
    number: int
    record: TokenRecord
    rows: array[int] = field(default_factory=lambda: array("I"))
    """The rows of its subscriptions."""
    last: dict[int, KeptNotification] | None = None
    """Last notifications by subscription row, oldest first. None instead of an empty dictionary."""


class TokenTable:
    """Tokens by id and by number. Subscription rows refer to tokens by number; numbers are reused."""

    def __init__(self) -> None:
        self._tokens: Final[dict[bytes, KeptToken]] = {}
        self._numbers: Final[list[KeptToken | None]] = []
        self._free_numbers: Final = array("I")
        self._registrations: Final[dict[DeviceToken, bytes | dict[bytes, bytes]]] = {}
        """Token id by device token; if several keys registered it, token id by verify key."""

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[KeptToken]:
        return iter(self._tokens.values())

    def get(self, token_id: bytes) -> KeptToken | None:
        return self._tokens.get(token_id)

    def of_number(self, number: int) -> KeptToken:
        token = self._numbers[number]
        assert token is not None
        return token

    def registration(self, device_token: DeviceToken, verify_key: bytes) -> KeptToken | None:
        registered = self._registrations.get(device_token)
        if isinstance(registered, dict):
            token_id = registered.get(verify_key)
            return None if token_id is None else self._tokens[token_id]
        token = None if registered is None else self._tokens[registered]
        return token if token is not None and token.record.verify_key == verify_key else None

    def registrations(self, device_token: DeviceToken) -> list[KeptToken]:
        """Return the registrations of a device token with any key."""
        registered = self._registrations.get(device_token)
        if registered is None:
            return []
        token_ids = registered.values() if isinstance(registered, dict) else (registered,)
        return [self._tokens[token_id] for token_id in token_ids]

    def is_new(self, record: TokenRecord) -> bool:
        """Whether neither the id nor the registration exists."""
        known = self.registration(record.device_token, record.verify_key)
        return known is None and record.token_id not in self._tokens

    def add(self, record: TokenRecord) -> KeptToken | None:
        """Add a token. Returns None, and changes nothing, if it is not new."""
        if not self.is_new(record):
            return None
        number = self._free_numbers.pop() if self._free_numbers else len(self._numbers)
        token = KeptToken(number, record)
        if number == len(self._numbers):
            self._numbers.append(token)
        else:
            self._numbers[number] = token
        self._tokens[record.token_id] = token
        self._register(record)
        return token

    def remove(self, token: KeptToken) -> None:
        del self._tokens[token.record.token_id]
        self._numbers[token.number] = None
        self._free_numbers.append(token.number)
        self._unregister(token.record)

    def change_device_token(self, token: KeptToken, record: TokenRecord) -> bool:
        """Change the device token. Returns False, and changes nothing, if the same key registered it before."""
        holder = self.registration(record.device_token, record.verify_key)
        if holder is not None and holder is not token:
            return False
        self._unregister(token.record)
        token.record = record
        self._register(record)
        return True

    def _register(self, record: TokenRecord) -> None:
        registered = self._registrations.get(record.device_token)
        if registered is None:
            self._registrations[record.device_token] = record.token_id
        elif isinstance(registered, dict):
            registered[record.verify_key] = record.token_id
        else:
            first = self._tokens[registered].record
            self._registrations[record.device_token] = {
                first.verify_key: first.token_id,
                record.verify_key: record.token_id,
            }

    def _unregister(self, record: TokenRecord) -> None:
        """Remove the registration if it still belongs to this token."""
        registered = self._registrations.get(record.device_token)
        if registered == record.token_id:
            del self._registrations[record.device_token]
        elif isinstance(registered, dict) and registered.get(record.verify_key) == record.token_id:
            del registered[record.verify_key]
            if len(registered) == 1:
                [self._registrations[record.device_token]] = registered.values()


class NotificationTable:
    """Totals of all notifications, and the tokens with pending ones. The notifications are in their tokens."""

    def __init__(self) -> None:
        self.count = 0
        self.received = 0
        self.accepted = 0
        self.superseded = 0
        self.failed: Final[dict[str, int]] = {}
        self._pending: Final[dict[bytes, int]] = {}
        """The number of pending notifications of each token that has some."""
        self._pending_count = 0
        self.before_change: Callable[[KeptToken], None] | None = None
        """Called with a token before its last notifications change, by which a gradual snapshot stays consistent."""
        self._order: list[bytes] = []

    def put(self, token: KeptToken, row: int, new: KeptNotification) -> KeptNotification | None:
        """Set the queue's last notification. Returns the one before."""
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
        """Add a new pending notification. Returns the one that it supersedes."""
        before = self.put(token, row, new)
        self.received += 1
        if before is None or not before.pending:
            return None
        self.superseded += 1
        return before

    def settle(self, token: KeptToken, last: KeptNotification, outcome: str) -> None:
        """Settle `last`, which is pending. The caller prunes."""
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
        """Forget the notification of a row that is removed. The caller has settled it."""
        if self.before_change is not None:
            self.before_change(token)
        if token.last is not None and token.last.pop(row, None) is not None:
            self.count -= 1
            if not token.last:
                token.last = None

    def prune(self, token: KeptToken) -> None:
        """Keep pending notifications and the newest others."""
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
        """Return a page in the order of ids. Tokens with new pending notifications may be missing."""
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
