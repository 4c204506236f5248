"""Several transmissions in one block: a count byte, then `large(transmission)` each (smp.md 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tocsin.errors import DecodeError, LocalProtocolError

MAX_ITEMS: Final = 255
ITEM_OVERHEAD: Final = 2
RESERVED_BYTES: Final = 19
"""Count byte, padding length and the tag of an encrypted block: kept free in every block, encrypted or not."""


class Packing(NamedTuple):
    """The block in which each item of a list is sent."""

    batches: list[slice]
    """Runs of items that share a block, in order. Items that are too large are in no run."""
    too_large: list[int]
    """Indices of items that are too large for any block."""


def batch_budget(block_size: int) -> int:
    """Return how many bytes of `large(transmission)` items a sender puts into one block."""
    return block_size - RESERVED_BYTES


def pack(items: Sequence[bytes], budget: int) -> Packing:
    """Distribute items over blocks as the reference does: from the end, so that the first block is the short one."""
    batches: list[slice] = []
    too_large: list[int] = []
    stop = len(items)
    used = 0
    for index in range(len(items) - 1, -1, -1):
        size = len(items[index]) + ITEM_OVERHEAD
        if size > budget:
            too_large.append(index)
            if stop > index + 1:
                batches.append(slice(index + 1, stop))
            stop, used = index, 0
        elif used + size > budget or stop - index > MAX_ITEMS:
            batches.append(slice(index + 1, stop))
            stop, used = index + 1, size
        else:
            used += size
    if stop:
        batches.append(slice(0, stop))
    return Packing(batches[::-1], too_large[::-1])


class BatchFiller:
    """Fills a block from the front, for streams whose end is not known yet."""

    __slots__ = ("_budget", "_items", "_most", "_used")

    def __init__(self, budget: int, most: int = MAX_ITEMS) -> None:
        self._budget = budget
        self._most = most
        self._items: list[bytes] = []
        self._used = 0

    def __len__(self) -> int:
        return len(self._items)

    def fits(self, item: bytes) -> bool:
        """Return whether the item still fits this block. An item that is too large for any block never does."""
        return self._used + len(item) + ITEM_OVERHEAD <= self._budget and len(self._items) < self._most

    def add(self, item: bytes) -> None:
        self._items.append(item)
        self._used += len(item) + ITEM_OVERHEAD

    def take(self) -> list[bytes]:
        """Return the collected items and empty the filler."""
        items, self._items, self._used = self._items, [], 0
        return items


def join_batch(items: Sequence[bytes]) -> bytes:
    """Join 1 to 255 items, each shorter than 64 KiB, into a block content. Raises `LocalProtocolError`."""
    try:
        parts = [bytes((len(items),))]
        for item in items:
            parts.append(len(item).to_bytes(2, "big"))
            parts.append(item)
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError("more or longer transmissions than a block can hold") from error
    return b"".join(parts)


def split_batch(content: bytes) -> list[bytes]:
    """Split a block into transmissions. Raises `DecodeError` on count 0, truncation and leftover bytes."""
    if not content or not content[0]:
        raise DecodeError("a block without transmissions")
    items: list[bytes] = []
    at, size = 1, len(content)
    for _ in range(content[0]):
        start = at + ITEM_OVERHEAD
        at = start + int.from_bytes(content[at:start], "big")
        if start > size or at > size:
            raise DecodeError("a transmission longer than its block")
        items.append(content[start:at])
    if at != size:
        raise DecodeError(f"{size - at} bytes left over after the last transmission")
    return items
