"""Rows of fixed width in large byte arrays, sixteen to a block, all rows of a block of one SMP router.

So neither the row nor a list for each router has to name the other: a router is a list of blocks. A block that becomes
empty goes to whichever router needs one of its width next, and its place in the list is taken by the last one: whoever
walks a router's blocks from the end to the beginning misses no row that was there before.

Rows are of two widths, since most of what is known of a queue may be absent. Numbers tell them apart by their array.
"""

from __future__ import annotations

from array import array
from typing import Final

BLOCK_ROWS: Final = 16
BLOCK_BITS: Final = 4
ARRAY_BITS: Final = 12
_ARRAY_ROWS: Final = 1 << ARRAY_BITS
ROW_IN_ARRAY: Final = _ARRAY_ROWS - 1
_ARRAY_BLOCKS: Final = _ARRAY_ROWS >> BLOCK_BITS
FREE: Final = 0xFF
"""In the byte of a row that says its state: the row is not in use."""


class _RouterBlocks:
    """Where the rows of one SMP router are."""

    __slots__ = ("blocks", "with_room")

    def __init__(self, widths: int) -> None:
        self.blocks = array("I")
        self.with_room: list[set[int]] = [set() for _ in range(widths)]


class RowBlocks:
    """`state_at` is where the state byte is in rows of any width; rows of the first width are kind 0."""

    def __init__(self, widths: tuple[int, ...], state_at: int) -> None:
        self._widths: Final = widths
        self._state_at: Final = state_at
        self.arrays: Final[list[bytearray]] = []
        """By the upper bits of a row's number."""
        self._array_widths: Final[list[int]] = []
        self._routers: Final[list[_RouterBlocks]] = []
        self.block_router: Final = array("I")
        self._block_place: Final = array("I")
        self._block_rows: Final = bytearray()
        """How many rows of a block are in use."""
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
        """The rows of one block of a router's list."""
        first = self._routers[router].blocks[place] << BLOCK_BITS
        return [first + index for index, state in enumerate(self._states(first)) if state != FREE]

    @property
    def router_count(self) -> int:
        """Numbers of routers are below this."""
        return len(self._routers)

    def add(self, number: int, kind: int) -> int:
        """A row of this router; the caller fills it, state included, before the next call."""
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
        """Of the block that begins with this row."""
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
