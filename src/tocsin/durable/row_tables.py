"""Packed tables: rows of fixed width in large byte arrays, and hash tables that find them.

A block holds sixteen rows of one SMP router. A hash table needs four bytes per slot, because it reads the key from the
row itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

BLOCK_ROWS: Final = 16
BLOCK_BITS: Final = 4
ARRAY_BITS: Final = 12
_ARRAY_ROWS: Final = 1 << ARRAY_BITS
ROW_IN_ARRAY: Final = _ARRAY_ROWS - 1
_ARRAY_BLOCKS: Final = _ARRAY_ROWS >> BLOCK_BITS
FREE: Final = 0xFF
"""The value of a row's state byte when the row is not in use."""


class _RouterBlocks:
    """The blocks of one SMP router."""

    __slots__ = ("blocks", "with_room")

    def __init__(self, widths: int) -> None:
        self.blocks = array("I")
        self.with_room: list[set[int]] = [set() for _ in range(widths)]


class RowBlocks:
    """Rows in blocks by SMP router. `state_at` is the offset of the state byte; rows of the first width are kind 0."""

    def __init__(self, widths: tuple[int, ...], state_at: int) -> None:
        self._widths: Final = widths
        self._state_at: Final = state_at
        self.arrays: Final[list[bytearray]] = []
        """Arrays by the upper bits of a row's number."""
        self._array_widths: Final[list[int]] = []
        self._routers: Final[list[_RouterBlocks]] = []
        self.block_router: Final = array("I")
        self._block_place: Final = array("I")
        self._block_rows: Final = bytearray()
        """The number of rows of a block that are in use."""
        self._free_blocks: Final = [array("I") for _ in widths]

    def where(self, row: int) -> tuple[bytearray, int]:
        number = row >> ARRAY_BITS
        return self.arrays[number], (row & ROW_IN_ARRAY) * self._array_widths[number]

    def width(self, row: int) -> int:
        return self._array_widths[row >> ARRAY_BITS]

    def router(self, row: int) -> int:
        return self.block_router[row >> BLOCK_BITS]

    def block_count(self, router: int) -> int:
        return len(self._routers[router].blocks) if router < len(self._routers) else 0

    def rows_of_block(self, router: int, place: int) -> list[int]:
        """Return the rows of one block of a router's list."""
        first = self._routers[router].blocks[place] << BLOCK_BITS
        return [first + index for index, state in enumerate(self._states(first)) if state != FREE]

    @property
    def router_count(self) -> int:
        """An upper bound of the routers' numbers."""
        return len(self._routers)

    def add(self, number: int, kind: int) -> int:
        """Add a row of a router. The caller fills it, including its state, before the next call."""
        while len(self._routers) <= number:
            self._routers.append(_RouterBlocks(len(self._widths)))
        with_room = self._routers[number].with_room[kind]
        if not with_room:
            with_room.add(self._new_block(number, kind))
        block = next(iter(with_room))
        self._block_rows[block] += 1
        if self._block_rows[block] == BLOCK_ROWS:
            with_room.remove(block)
        first = block << BLOCK_BITS
        return first + self._states(first).index(FREE)

    def remove(self, row: int) -> None:
        data, at = self.where(row)
        data[at + self._state_at] = FREE
        block, kind = row >> BLOCK_BITS, self._widths.index(self.width(row))
        router = self._routers[self.block_router[block]]
        self._block_rows[block] -= 1
        if self._block_rows[block]:
            router.with_room[kind].add(block)
            return
        router.with_room[kind].discard(block)
        last, place = router.blocks.pop(), self._block_place[block]
        if last != block:
            router.blocks[place] = last
            self._block_place[last] = place
        self._free_blocks[kind].append(block)

    def _states(self, first: int) -> bytearray:
        """Return the state bytes of the block that begins with this row."""
        data, at = self.where(first)
        width = self.width(first)
        return data[at + self._state_at : at + BLOCK_ROWS * width : width]

    def _new_block(self, number: int, kind: int) -> int:
        if not self._free_blocks[kind]:
            self._new_array(kind)
        block = self._free_blocks[kind].pop()
        blocks = self._routers[number].blocks
        self.block_router[block] = number
        self._block_place[block] = len(blocks)
        blocks.append(block)
        return block

    def _new_array(self, kind: int) -> None:
        width, first = self._widths[kind], len(self._block_rows)
        data = bytearray(_ARRAY_ROWS * width)
        data[self._state_at :: width] = bytes([FREE]) * _ARRAY_ROWS
        self.arrays.append(data)
        self._array_widths.append(width)
        self._block_rows.extend(bytes(_ARRAY_BLOCKS))
        self.block_router.frombytes(bytes(4 * _ARRAY_BLOCKS))
        self._block_place.frombytes(bytes(4 * _ARRAY_BLOCKS))
        self._free_blocks[kind].extend(range(first + _ARRAY_BLOCKS - 1, first - 1, -1))


_PARTS_BITS: Final = 8
_PARTS: Final = 1 << _PARTS_BITS
_FIRST_SLOTS: Final = 8
_EMPTY: Final = 0


class RowHashTable:
    """Finds rows by key. The caller adds no key twice, and removes only keys that exist."""

    def __init__(self, key_of: Callable[[int], object]) -> None:
        self._key_of: Final = key_of
        self._parts: Final = [array("I", bytes(4 * _FIRST_SLOTS)) for _ in range(_PARTS)]
        self._used: Final = array("I", bytes(4 * _PARTS))

    def find(self, key: object) -> int | None:
        hashed = hash(key)
        slots = self._parts[hashed & (_PARTS - 1)]
        count = len(slots)
        at = (hashed >> _PARTS_BITS) % count
        while (found := slots[at]) != _EMPTY:
            if self._key_of(found - 1) == key:
                return found - 1
            at = at + 1 if at + 1 < count else 0
        return None

    def add(self, key: object, row: int) -> None:
        hashed = hash(key)
        part = hashed & (_PARTS - 1)
        if self._used[part] * 4 >= len(self._parts[part]) * 3:
            self._grow(part)
        _put(self._parts[part], hashed, row + 1)
        self._used[part] += 1

    def remove(self, key: object) -> None:
        """Remove a key and close the gap, so that no marks of removed rows accumulate."""
        hashed = hash(key)
        part = hashed & (_PARTS - 1)
        slots = self._parts[part]
        count = len(slots)
        at = (hashed >> _PARTS_BITS) % count
        while self._key_of(slots[at] - 1) != key:
            at = (at + 1) % count
        self._used[part] -= 1
        gap = at
        while True:
            slots[gap] = _EMPTY
            while True:
                at = (at + 1) % count
                if (found := slots[at]) == _EMPTY:
                    return
                home = (hash(self._key_of(found - 1)) >> _PARTS_BITS) % count
                # It may fill the gap unless its home lies behind the gap, up to where it is.
                if (at - home) % count >= (at - gap) % count:
                    break
            slots[gap] = slots[at]
            gap = at

    def _grow(self, part: int) -> None:
        old = self._parts[part]
        slots = self._parts[part] = array("I", bytes(4 * (len(old) + len(old) // 2)))
        for found in old:
            if found != _EMPTY:
                _put(slots, hash(self._key_of(found - 1)), found)


def _put(slots: array[int], hashed: int, found: int) -> None:
    count = len(slots)
    at = (hashed >> _PARTS_BITS) % count
    while slots[at] != _EMPTY:
        at = at + 1 if at + 1 < count else 0
    slots[at] = found
