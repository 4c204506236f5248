"""Millions of subscriptions in little memory: rows of 85 bytes, found through two hash tables.

Theory of operation. A subscription is a row in one of a few large byte arrays (`row_tables`), known by its number:

    subscription id 24 | token number 4 | state 1 | notifier id 24 | key 32

A queue of direct notifications has no key, and its notifier id serves as subscription id. Its row ends after the state,
and is in one hash table only. Dictionaries hold what does not fit a row: ids of another length, keys of another kind,
texts of errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.durable.row_tables import (
    ARRAY_BITS,
    BLOCK_BITS,
    BLOCK_ROWS,
    ROW_IN_ARRAY,
    RowBlocks,
    RowHashTable,
)
from tocsin.ntf_router.store.records import USED_ADDRESSES, UsedRouter
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import WANTED
from tocsin.protocol.ntf.pushes import router_text
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes

__all__ = ["BLOCK_ROWS", "ID_BYTES", "Subscription", "SubscriptionTable"]

ID_BYTES: Final = 24

_TOKEN: Final = ID_BYTES
_STATE: Final = _TOKEN + 4
_NOTIFIER: Final = _STATE + 1
_KEY: Final = _NOTIFIER + ID_BYTES
_ROW_BYTES: Final = _KEY + 32
_DIRECT_ROW_BYTES: Final = _NOTIFIER
_KEYED: Final = 0
_DIRECT: Final = 1
_FAILED: Final = 0x0F
_ASSOCIATED: Final = 0x10
_NOTED_ACTIVE: Final = 0x20
_STATES: Final = tuple(SubscriptionState)
_STATE_CODES: Final = {state: code for code, state in enumerate(_STATES)}
_KEY_PREFIX: Final = Ed25519PrivateKey.der_prefix
_KEY_BYTES: Final = len(_KEY_PREFIX) + Ed25519PrivateKey.raw_bytes
_LONG_ID: Final = b"\xff" * ID_BYTES


class Subscription(NamedTuple):
    subscription_id: bytes
    notifier_id: bytes
    notifier_key: bytes
    """DER; empty for a queue of direct notifications, whose two ids are the same."""
    token: int
    address: int
    """The number of the SMP router's address by which its owner named it."""
    status: SubscriptionStatus
    associated: bool


class SubscriptionTable:
    """Rows are known by their numbers, which are reused after `remove`."""

    def __init__(self) -> None:
        self._rows: Final = RowBlocks((_ROW_BYTES, _DIRECT_ROW_BYTES), _STATE)
        self._count = 0
        self.direct_count = 0
        self._long_ids: Final[dict[int, bytes]] = {}
        self._other_keys: Final[dict[int, bytes]] = {}
        self._failures: Final[dict[int, str]] = {}
        self.router_of: Final[list[int]] = []
        """The number of the SMP router that each address leads to. An entry must exist before rows of its address."""
        self._by_id: Final = RowHashTable(self.subscription_id)
        self._by_queue: Final = RowHashTable(self._queue_key)
        # Bound methods save a call on the hottest look-ups.
        self._where: Final = self._rows.where
        self._width: Final = self._rows.width
        self.address: Final = self._rows.router
        self.block_count: Final = self._rows.block_count
        self.rows_of_block: Final = self._rows.rows_of_block

    def __len__(self) -> int:
        return self._count

    def find(self, subscription_id: bytes) -> int | None:
        return self._by_id.find(subscription_id)

    def find_queue(self, router: int, notifier_id: bytes) -> int | None:
        """Find a queue of an SMP router, whichever of its addresses the owner named."""
        row = self._by_queue.find((router, notifier_id))
        if row is None and self.direct_count:
            row = self._by_id.find(notifier_id)
            if row is not None and not (self.is_direct(row) and self.router_of[self.address(row)] == router):
                return None
        return row

    def is_direct(self, row: int) -> bool:
        return self._width(row) == _DIRECT_ROW_BYTES

    def add(self, subscription: Subscription) -> int:
        """Add a row. The caller has checked that id and queue are new, and that the id has `ID_BYTES`."""
        direct = not subscription.notifier_key
        row = self._rows.add(subscription.address, _DIRECT if direct else _KEYED)
        data, at = self._where(row)
        fields = subscription.subscription_id + subscription.token.to_bytes(4, "little") + b"\0"
        data[at : at + _NOTIFIER] = fields
        if direct:
            self.direct_count += 1
        else:
            data[at + _NOTIFIER : at + _ROW_BYTES] = self._notifier_and_key(row, subscription)
            router = self.router_of[subscription.address]
            self._by_queue.add((router, subscription.notifier_id), row)
        self.set_state(row, subscription.status, associated=subscription.associated)
        self._by_id.add(subscription.subscription_id, row)
        self._count += 1
        return row

    def _notifier_and_key(self, row: int, subscription: Subscription) -> bytes:
        notifier_id, key = subscription.notifier_id, subscription.notifier_key
        if len(notifier_id) != ID_BYTES or notifier_id == _LONG_ID:
            self._long_ids[row], notifier_id = notifier_id, _LONG_ID
        if len(key) != _KEY_BYTES or not key.startswith(_KEY_PREFIX):
            self._other_keys[row], key = key, bytes(_KEY_BYTES)
        return notifier_id + key[len(_KEY_PREFIX) :]

    def remove(self, row: int) -> None:
        self._by_id.remove(self.subscription_id(row))
        if self.is_direct(row):
            self.direct_count -= 1
        else:
            self._by_queue.remove(self._queue_key(row))
        for extra in (self._long_ids, self._other_keys, self._failures):
            extra.pop(row, None)
        self._count -= 1
        self._rows.remove(row)

    def get(self, row: int) -> Subscription:
        status, associated = self.state(row)
        return Subscription(
            self.subscription_id(row),
            self.notifier_id(row),
            self.key(row),
            self.token(row),
            self.address(row),
            status,
            associated,
        )

    def subscription_id(self, row: int) -> bytes:
        data, at = self._where(row)
        return bytes(data[at : at + ID_BYTES])

    def notifier_id(self, row: int) -> bytes:
        data, at = self._where(row)
        if self._width(row) == _ROW_BYTES:
            at += _NOTIFIER
        notifier_id = bytes(data[at : at + ID_BYTES])
        return self._long_ids[row] if notifier_id == _LONG_ID else notifier_id

    def key(self, row: int) -> bytes:
        if self.is_direct(row):
            return b""
        if (other := self._other_keys.get(row)) is not None:
            return other
        data, at = self._where(row)
        return _KEY_PREFIX + data[at + _KEY : at + _ROW_BYTES]

    def token(self, row: int) -> int:
        data, at = self._where(row)
        return int.from_bytes(data[at + _TOKEN : at + _STATE], "little")

    def addresses_of(self, rows: Iterable[int]) -> set[int]:
        """Return the different addresses of rows. Rows of a block have the same one."""
        block_router = self._rows.block_router
        return {block_router[block] for block in {row >> BLOCK_BITS for row in rows}}

    def state(self, row: int) -> tuple[SubscriptionStatus, bool]:
        """Return the status, and whether the queue is associated with our service."""
        data, at = self._where(row)
        packed = data[at + _STATE]
        code = packed & _FAILED
        status = SubscriptionFailed(self._failures[row]) if code == _FAILED else _STATES[code]
        return status, bool(packed & _ASSOCIATED)

    def set_state(self, row: int, status: SubscriptionStatus, *, associated: bool) -> None:
        """Set status and association. The mark of `note_active` stays."""
        if self._failures:
            self._failures.pop(row, None)
        if isinstance(status, SubscriptionFailed):
            self._failures[row] = status.text
            code = _FAILED
        else:
            code = _STATE_CODES[status]
        data, at = self._where(row)
        at += _STATE
        data[at] = data[at] & _NOTED_ACTIVE | code | (_ASSOCIATED if associated else 0)

    def noted_active(self, row: int) -> bool:
        """Whether the journal's last line about the row says ACTIVE."""
        data, at = self._where(row)
        return bool(data[at + _STATE] & _NOTED_ACTIVE)

    def note_active(self, row: int, *, active: bool) -> None:
        data, at = self._where(row)
        at += _STATE
        data[at] = data[at] | _NOTED_ACTIVE if active else data[at] & ~_NOTED_ACTIVE

    def rows(self) -> Iterator[int]:
        """Yield all rows. The table must not change meanwhile."""
        for address in range(self._rows.router_count):
            for place in range(self.block_count(address)):
                yield from self.rows_of_block(address, place)

    def _queue_key(self, row: int) -> tuple[int, bytes]:
        """Return the queue of a row with a key. Inlined, because every look-up calls it."""
        at = (row & ROW_IN_ARRAY) * _ROW_BYTES + _NOTIFIER
        notifier_id = bytes(self._rows.arrays[row >> ARRAY_BITS][at : at + ID_BYTES])
        if notifier_id == _LONG_ID:
            notifier_id = self._long_ids[row]
        return self.router_of[self._rows.block_router[row >> BLOCK_BITS]], notifier_id


@dataclass(slots=True)
class KeptRouter:
    """An SMP router: its identity, whichever hosts and ports clients name."""

    number: int
    service_id: bytes | None = None
    associated: int = 0
    combined_hash: int = 0
    """The hash of wanted queues that are associated with our service."""
    individual: int = 0
    """The number of wanted queues without service."""
    new: int = 0
    """The number of these that were never subscribed to."""
    direct: int = 0
    """The number of wanted queues of direct notifications."""
    credentials: Credentials | None = None
    """The certificate of our service there, if it has one of its own."""
    addresses: list[int] = field(default_factory=list)
    """The numbers of its addresses, in the order in which clients named them."""


@dataclass(slots=True)
class KeptAddress:
    """An address of an SMP router, as some clients name it."""

    location: RouterLocation
    router: KeptRouter
    text: bytes
    """The first part of its notifications' texts."""


class SubscribedRouters:
    """SMP routers by identity, and their addresses by number.

    An address is removed with its last subscription, unless it is the last one of a router where we have a service id.
    Its number is then reused, so callers must look it up again after every `await`.
    """

    def __init__(self) -> None:
        self.table: Final = SubscriptionTable()
        self._addresses: Final[list[KeptAddress | None]] = []
        self._free_numbers: Final[list[int]] = []
        self._numbers: Final[dict[RouterLocation, int]] = {}
        self._routers: Final[dict[bytes, KeptRouter]] = {}
        """By key hash."""
        self._router_numbers: Final = count()

    def __iter__(self) -> Iterator[KeptRouter]:
        return iter(list(self._routers.values()))

    def router(self, location: RouterLocation) -> KeptRouter | None:
        """Return the router of this identity, whichever hosts are named."""
        return self._routers.get(location.key_hash)

    def number(self, location: RouterLocation) -> int | None:
        """Return the number of exactly this address."""
        return self._numbers.get(location)

    def number_or_new(self, location: RouterLocation) -> int:
        number = self._numbers.get(location)
        if number is None:
            router = self._routers.get(location.key_hash)
            if router is None:
                router = self._routers[location.key_hash] = KeptRouter(next(self._router_numbers))
            if not self._free_numbers:
                self._free_numbers.append(len(self._addresses))
                self._addresses.append(None)
                self.table.router_of.append(0)
            number = self._numbers[location] = self._free_numbers.pop()
            self._addresses[number] = KeptAddress(location, router, router_text(location))
            self.table.router_of[number] = router.number
            router.addresses.append(number)
        return number

    def address(self, number: int) -> KeptAddress:
        address = self._addresses[number]
        assert address is not None
        return address

    def set_service(self, location: RouterLocation, service_id: bytes | None) -> None:
        """Set our service id at the router, which is kept from now on."""
        self.address(self.number_or_new(location)).router.service_id = service_id

    def used(self, router: KeptRouter) -> UsedRouter:
        known = sorted(router.addresses, key=self.table.block_count, reverse=True)[:USED_ADDRESSES]
        first, *others = [self.address(number).location for number in known]
        return UsedRouter(
            first,
            router.service_id,
            router.associated,
            ids_hash_bytes(router.combined_hash),
            router.individual,
            router.service_id is None
            and router.individual == router.new
            and bool(router.new or router.associated),
            other_addresses=tuple(others),
            direct_count=router.direct,
        )

    def release_if_unused(self, number: int) -> None:
        address = self.address(number)
        router = address.router
        if self.table.block_count(number) or (router.service_id is not None and len(router.addresses) == 1):
            return
        router.addresses.remove(number)
        if not router.addresses:
            del self._routers[address.location.key_hash]
        del self._numbers[address.location]
        self._addresses[number] = None
        self._free_numbers.append(number)

    def queue(self, row: int) -> NotifierQueue:
        return NotifierQueue(self.address(self.table.address(row)).location, self.table.notifier_id(row))

    def row_of(self, queue: NotifierQueue) -> int | None:
        router = self.router(queue.router)
        return None if router is None else self.table.find_queue(router.number, queue.notifier_id)

    def add(self, subscription: Subscription) -> int:
        row = self.table.add(subscription)
        self._count(row, 1)
        return row

    def remove(self, row: int) -> None:
        number = self.table.address(row)
        self._count(row, -1)
        self.table.remove(row)
        self.release_if_unused(number)

    def set_state(self, row: int, status: SubscriptionStatus, *, associated: bool) -> None:
        self._count(row, -1)
        self.table.set_state(row, status, associated=associated)
        self._count(row, 1)

    def page(
        self, router: KeptRouter, after: bytes | None, limit: int, *, with_associated: bool, blocks: int
    ) -> tuple[list[int], bytes | None]:
        """Return wanted rows, by address, from its last block to its first, and the cursor behind them.

        The page has at most `limit` rows of about `blocks` blocks. The cursor is an address, a block's place and the
        number of its rows that are left.
        """
        begin = 0 if after is None else int.from_bytes(after[:4], "big")
        found: list[int] = []
        for number in sorted(each for each in router.addresses if each >= begin):
            if len(found) == limit or blocks <= 0:
                return found, number.to_bytes(4, "big")
            within = after[4:] if after is not None and number == begin else b""
            rows, cursor = self._page_of_address(
                number, within, limit - len(found), with_associated=with_associated, blocks=blocks
            )
            found += rows
            if cursor is not None:
                return found, number.to_bytes(4, "big") + cursor
            blocks -= max(1, self.table.block_count(number))
        return found, None

    def _page_of_address(
        self, number: int, after: bytes, limit: int, *, with_associated: bool, blocks: int
    ) -> tuple[list[int], bytes | None]:
        place, left = self.table.block_count(number), 0
        if after:
            cursor_place, cursor_left = divmod(int.from_bytes(after, "big"), BLOCK_ROWS)
            if cursor_place < place:
                place, left = cursor_place, cursor_left
        found: list[int] = []
        while True:
            if left == 0:
                if place == 0 or blocks == 0:
                    return found, _cursor(place, left)
                place, left, blocks = place - 1, BLOCK_ROWS, blocks - 1
            for row in reversed(self.table.rows_of_block(number, place)):
                index = row % BLOCK_ROWS
                if index >= left:
                    continue
                left = index
                status, associated = self.table.state(row)
                if status in WANTED and (with_associated or not associated) and not self.table.is_direct(row):
                    found.append(row)
                    if len(found) == limit:
                        return found, _cursor(place, left)
            left = 0

    def _count(self, row: int, by: int) -> None:
        status, associated = self.table.state(row)
        if status not in WANTED:
            return
        router = self.address(self.table.address(row)).router
        if associated:
            router.associated += by
            router.direct += by if self.table.is_direct(row) else 0
            router.combined_hash ^= id_hash(self.table.notifier_id(row))
        else:
            router.individual += by
            router.new += by if status is SubscriptionState.NEW else 0


def _cursor(place: int, left: int) -> bytes | None:
    return (place * BLOCK_ROWS + left).to_bytes(5, "big") if place or left else None
