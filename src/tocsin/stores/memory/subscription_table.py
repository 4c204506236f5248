"""Millions of subscriptions in little memory: rows of 85 bytes, found through two hash tables.

Theory of operation. A subscription is a row in one of a few large byte arrays, known by its number:

    subscription id 24 | notifier id 24 | key 32 | token number 4 | state 1

Sixteen rows make a block, and all rows of a block are of one SMP router, so that neither the row nor a list for each
router has to name the other: a router is a list of blocks. A block that becomes empty goes to whichever router needs
one next, and its place in the list is taken by the last one: whoever walks a router's blocks from the end to the
beginning misses no row that was there before. What does not fit the row (ids of another length, keys of another kind,
texts of errors) is in a dictionary.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.stores.memory.row_hash_table import RowHashTable

ID_BYTES: Final = 24
ROW_BYTES: Final = 85
BLOCK_ROWS: Final = 16

_BLOCK_BITS: Final = 4
_ARRAY_BITS: Final = 14
_ARRAY_ROWS: Final = 1 << _ARRAY_BITS
_TOKEN: Final = 80
_STATE: Final = 84
_FREE: Final = 0xFF
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
    """DER"""
    token: int
    router: int
    status: SubscriptionStatus
    associated: bool


class _RouterBlocks:
    """Where the rows of one SMP router are."""

    __slots__ = ("blocks", "with_room")

    def __init__(self) -> None:
        self.blocks = array("I")
        self.with_room: set[int] = set()


class SubscriptionTable:
    """Rows are known by numbers, which are used again after `remove`."""

    def __init__(self) -> None:
        self._arrays: Final[list[bytearray]] = []
        self._routers: Final[list[_RouterBlocks]] = []
        self._block_router: Final = array("I")
        self._block_place: Final = array("I")
        self._block_rows: Final = bytearray()
        """How many rows of a block are in use."""
        self._free_blocks: Final = array("I")
        self._count = 0
        self._long_ids: Final[dict[int, bytes]] = {}
        self._other_keys: Final[dict[int, bytes]] = {}
        self._failures: Final[dict[int, str]] = {}
        self._by_id: Final = RowHashTable(self.subscription_id)
        self._by_queue: Final = RowHashTable(self._queue_key)

    def __len__(self) -> int:
        return self._count

    def find(self, subscription_id: bytes) -> int | None:
        return self._by_id.find(subscription_id)

    def find_queue(self, router: int, notifier_id: bytes) -> int | None:
        return self._by_queue.find((router, notifier_id))

    def add(self, subscription: Subscription) -> int:
        """The caller has made sure that neither id nor queue is there, and that the id has `ID_BYTES`."""
        row = self._new_row(subscription.router)
        data, at = self._where(row)
        notifier_id, key = subscription.notifier_id, subscription.notifier_key
        if len(notifier_id) != ID_BYTES or notifier_id == _LONG_ID:
            self._long_ids[row], notifier_id = notifier_id, _LONG_ID
        if len(key) != _KEY_BYTES or not key.startswith(_KEY_PREFIX):
            self._other_keys[row], key = key, bytes(_KEY_BYTES)
        data[at : at + ROW_BYTES] = b"".join(
            (
                subscription.subscription_id,
                notifier_id,
                key[len(_KEY_PREFIX) :],
                subscription.token.to_bytes(4, "little"),
                b"\0",
            )
        )
        self.set_state(row, subscription.status, associated=subscription.associated)
        self._by_id.add(subscription.subscription_id, row)
        self._by_queue.add((subscription.router, subscription.notifier_id), row)
        self._count += 1
        return row

    def remove(self, row: int) -> None:
        self._by_id.remove(self.subscription_id(row))
        self._by_queue.remove(self._queue_key(row))
        for extra in (self._long_ids, self._other_keys, self._failures):
            extra.pop(row, None)
        data, at = self._where(row)
        data[at + _STATE] = _FREE
        self._count -= 1
        block = row >> _BLOCK_BITS
        router = self._routers[self._block_router[block]]
        self._block_rows[block] -= 1
        if self._block_rows[block]:
            router.with_room.add(block)
            return
        router.with_room.discard(block)
        last, place = router.blocks.pop(), self._block_place[block]
        if last != block:
            router.blocks[place] = last
            self._block_place[last] = place
        self._free_blocks.append(block)

    def get(self, row: int) -> Subscription:
        status, associated = self.state(row)
        return Subscription(
            self.subscription_id(row),
            self.notifier_id(row),
            self.key(row),
            self.token(row),
            self.router(row),
            status,
            associated,
        )

    def subscription_id(self, row: int) -> bytes:
        data, at = self._where(row)
        return bytes(data[at : at + ID_BYTES])

    def notifier_id(self, row: int) -> bytes:
        data, at = self._where(row)
        notifier_id = bytes(data[at + ID_BYTES : at + 2 * ID_BYTES])
        return self._long_ids[row] if notifier_id == _LONG_ID else notifier_id

    def key(self, row: int) -> bytes:
        if (other := self._other_keys.get(row)) is not None:
            return other
        data, at = self._where(row)
        return _KEY_PREFIX + data[at + 2 * ID_BYTES : at + _TOKEN]

    def token(self, row: int) -> int:
        data, at = self._where(row)
        return int.from_bytes(data[at + _TOKEN : at + _STATE], "little")

    def router(self, row: int) -> int:
        return self._block_router[row >> _BLOCK_BITS]

    def state(self, row: int) -> tuple[SubscriptionStatus, bool]:
        """Status, and whether it is associated with our service."""
        data, at = self._where(row)
        packed = data[at + _STATE]
        code = packed & _FAILED
        status = SubscriptionFailed(self._failures[row]) if code == _FAILED else _STATES[code]
        return status, bool(packed & _ASSOCIATED)

    def set_state(self, row: int, status: SubscriptionStatus, *, associated: bool) -> None:
        """Keeps what `note_active` has set."""
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
        """Whether the journal's last word about the row is that it is ACTIVE."""
        data, at = self._where(row)
        return bool(data[at + _STATE] & _NOTED_ACTIVE)

    def note_active(self, row: int, *, active: bool) -> None:
        data, at = self._where(row)
        at += _STATE
        data[at] = data[at] | _NOTED_ACTIVE if active else data[at] & ~_NOTED_ACTIVE

    def block_count(self, router: int) -> int:
        return len(self._routers[router].blocks) if router < len(self._routers) else 0

    def rows_of_block(self, router: int, place: int) -> list[int]:
        """The rows of one block of a router's list."""
        first = self._routers[router].blocks[place] << _BLOCK_BITS
        data, at = self._where(first)
        states = data[at + _STATE : at + BLOCK_ROWS * ROW_BYTES : ROW_BYTES]
        return [first + index for index, state in enumerate(states) if state != _FREE]

    def rows(self) -> Iterator[int]:
        """Not to be changed meanwhile."""
        for router in range(len(self._routers)):
            for place in range(self.block_count(router)):
                yield from self.rows_of_block(router, place)

    def _queue_key(self, row: int) -> tuple[int, bytes]:
        data, at = self._arrays[row >> _ARRAY_BITS], (row & (_ARRAY_ROWS - 1)) * ROW_BYTES + ID_BYTES
        notifier_id = bytes(data[at : at + ID_BYTES])
        if notifier_id == _LONG_ID:
            notifier_id = self._long_ids[row]
        return self._block_router[row >> _BLOCK_BITS], notifier_id

    def _where(self, row: int) -> tuple[bytearray, int]:
        return self._arrays[row >> _ARRAY_BITS], (row & (_ARRAY_ROWS - 1)) * ROW_BYTES

    def _new_row(self, number: int) -> int:
        while len(self._routers) <= number:
            self._routers.append(_RouterBlocks())
        router = self._routers[number]
        if not router.with_room:
            router.with_room.add(self._new_block(number))
        block = next(iter(router.with_room))
        self._block_rows[block] += 1
        if self._block_rows[block] == BLOCK_ROWS:
            router.with_room.remove(block)
        first = block << _BLOCK_BITS
        data, at = self._where(first)
        return first + data[at + _STATE : at + BLOCK_ROWS * ROW_BYTES : ROW_BYTES].index(_FREE)

    def _new_block(self, number: int) -> int:
        if self._free_blocks:
            block = self._free_blocks.pop()
        else:
            block = len(self._block_rows)
            if (block << _BLOCK_BITS) == len(self._arrays) * _ARRAY_ROWS:
                self._arrays.append(bytearray(_ARRAY_ROWS * ROW_BYTES))
            self._block_rows.append(0)
            self._block_router.append(0)
            self._block_place.append(0)
            data, at = self._where(block << _BLOCK_BITS)
            data[at + _STATE : at + BLOCK_ROWS * ROW_BYTES : ROW_BYTES] = bytes([_FREE]) * BLOCK_ROWS
        blocks = self._routers[number].blocks
        self._block_router[block] = number
        self._block_place[block] = len(blocks)
        blocks.append(block)
        return block
