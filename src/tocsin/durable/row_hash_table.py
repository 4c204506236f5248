"""Row numbers by a key that is read from the row: a hash table of four bytes a slot.

Open addressing with linear probing, at most three quarters full. It is made of many small tables that grow each on its
own, so that adding a row never takes long. Python's own hash of bytes is keyed with a secret of the process, so nobody
can choose ids that collide.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

_PARTS_BITS: Final = 8
_PARTS: Final = 1 << _PARTS_BITS
_FIRST_SLOTS: Final = 8
_EMPTY: Final = 0


class RowHashTable:
    """The caller sees to it that no key is added twice, and that keys to be removed are there."""

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
        """Closes the gap, so that no marks of removed rows pile up."""
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
