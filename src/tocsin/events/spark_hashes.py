"""`xxhash64` of Spark in plain Python, for routers to find what the pipeline knows only by its hash.

XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). Of several columns each is hashed with the hash
of those before it as the seed; the first seed is 42 (Spark: `XxHash64`).
"""

from __future__ import annotations

from typing import Final

SPARK_SEED: Final = 42
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def spark_xxhash64(*texts: str) -> int:
    """Of columns of texts; signed, as Spark has it."""
    value = SPARK_SEED
    for text in texts:
        value = xxhash64(text.encode(), value)
    return value - (1 << 64) if value >> 63 else value


def notification_identity(period: str, pseudonym: str) -> tuple[int, int]:
    """The two halves by which tables know a notification (`pipeline.transforms.event_lines.identity`)."""
    return spark_xxhash64(period, pseudonym), spark_xxhash64(pseudonym, period)


def xxhash64(data: bytes, seed: int) -> int:
    """Unsigned."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _number(data, at + 8 * lane, 8))
            at += 32
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = seed + _P5
    value = (value + size) & _MASK
    while at + 8 <= size:
        value = _rotated(value ^ _round(0, _number(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= size:
        value = _rotated((value ^ (_number(data, at, 4) * _P1)) & _MASK, 23) * _P2 + _P3
        at += 4
    for byte in data[at:]:
        value = _rotated((value ^ (byte * _P5)) & _MASK, 11) * _P1
    return _mixed(value & _MASK)


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def _round(lane: int, number: int) -> int:
    return (_rotated(lane + number * _P2, 31) * _P1) & _MASK


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return ((value << by) | (value >> (64 - by))) & _MASK


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
