"""Keys of shards, chosen so that Spark puts each shard into a partition of its own."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 42


def shard_keys(shards: int) -> list[int]:
    """Return a key for each partition of a shuffle, in their order."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < shards:
        found.setdefault(partition_of(key, shards), key)
        key += 1
    return [found[partition] for partition in range(shards)]


def partition_of(key: int, partitions: int) -> int:
    """Return the partition into which Spark's shuffle puts an `int`: its Murmur3 hash, modulo their number."""
    mixed = key * 0xCC9E2D51 & _MASK
    mixed = _rotated(mixed, 15) * 0x1B873593 & _MASK
    value = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return (value - (1 << 32) if value >> 31 else value) % partitions


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
