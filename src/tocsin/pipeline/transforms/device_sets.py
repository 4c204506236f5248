"""Sets of devices, of which each keeps its least hashes: exact up to that many, and an estimate beyond.

Hashes of pseudonyms are spread evenly over all 64-bit numbers. So the greatest of the least k hashes tells how many
there are (the sketch of k minimum values; its standard error is 1/√(k - 2)). The union of two sets has the hashes of
both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

KEPT: Final = 4096
"""Hashes of a set: numbers beyond are accurate to about 1.6 %."""
MOST_SMALL_IDS: Final = 1 << 15
WHOLE: Final = 2.0**64


@dataclass(frozen=True, slots=True)
class DeviceSets:
    """Sets by number. Sorted by set and hash, each pair once."""

    numbers: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def limited(self, most: int) -> DeviceSets:
        """Only the least hashes of each set."""
        starts = np.flatnonzero(np.diff(self.numbers, prepend=-1))
        lengths = np.diff(starts, append=len(self.numbers))
        rank = np.arange(len(self.numbers)) - np.repeat(starts, lengths)
        return DeviceSets(self.numbers[rank < most], self.hashes[rank < most])

    def united(self, number_of: NDArray[np.int64], *, most: int = KEPT) -> DeviceSets:
        """The union of all sets that get the same new number. Those with a number below 0 are left out."""
        return sets_of(number_of[self.numbers], self.hashes.view(np.int64), most=most)

    def sizes(self, count: int, *, most: int = KEPT) -> list[int]:
        """The number of devices of each of the sets 0 … count - 1."""
        sizes = np.bincount(self.numbers, minlength=count)
        full = sizes >= most
        ends = np.cumsum(sizes)
        greatest = self.hashes[ends[full] - 1].astype(np.float64)
        sizes[full] = np.rint((sizes[full] - 1) * WHOLE / np.maximum(greatest, 1))
        return sizes.tolist()  # type: ignore[no-any-return]


def sets_of(numbers: NDArray[np.int64], hashes: NDArray[np.int64], *, most: int = KEPT) -> DeviceSets:
    """From pairs of a set's number and a device, in any order and repeated. Numbers below 0 are left out."""
    if (numbers < 0).any():
        numbers, hashes = numbers[numbers >= 0], hashes[numbers >= 0]
    unsigned = hashes.view(np.uint64)
    order = np.argsort(unsigned)
    keys = numbers[order]
    if int(keys.max(initial=0)) < MOST_SMALL_IDS:
        keys = keys.astype(np.int16)  # these are sorted by their digits
    order = order[np.argsort(keys, kind="stable")]
    ordered, found = numbers[order], unsigned[order]
    again = np.zeros(len(order), bool)
    again[1:] = (ordered[1:] == ordered[:-1]) & (found[1:] == found[:-1])
    return DeviceSets(ordered[~again], found[~again]).limited(most)


def joined_sets(parts: Iterable[tuple[DeviceSets, NDArray[np.int64]]], *, most: int = KEPT) -> DeviceSets:
    """The union of sets of several parts, each with the new numbers of its sets."""
    pairs = [(number_of[sets.numbers], sets.hashes.view(np.int64)) for sets, number_of in parts]
    if not pairs:
        return DeviceSets(np.empty(0, np.int64), np.empty(0, np.uint64))
    numbers, hashes = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return sets_of(numbers, hashes, most=most)
