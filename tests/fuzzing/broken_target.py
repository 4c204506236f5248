"""A target with a bug on purpose: the tests see to it that the fuzzer finds and reports it."""

from __future__ import annotations


def forgets_a_bound(data: bytes) -> None:
    """Reads the length of a batch's first item without asking whether it is there."""
    if data and data[0]:
        _ = data[1] << 8 | data[2]


def always_raises(_data: bytes) -> None:
    raise OverflowError("too much")
