"""The fallback engine for machines without atheris, and the shortening of findings.

No coverage guides it: it cuts, flips, inserts and splices seeds. It finds shallow bugs only, and says so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from fuzz.contract import ContractBroken, Target

INTERESTING: Final = (0x00, 0x01, 0x20, 0x2C, 0x30, 0x31, 0x3A, 0x3B, 0x7F, 0x80, 0xFF)
REPORT_EVERY: Final = 1000
MAX_STEPS: Final = 5
SHORTENING_SECONDS: Final = 10.0


class Finding(Exception):
    """An input that breaks the target's contract."""

    def __init__(self, data: bytes, broken: ContractBroken) -> None:
        super().__init__(str(broken))
        self.data = data
        self.broken = broken


def fuzz(
    target: Target,
    corpus: Sequence[bytes],
    *,
    runs: int | None,
    seconds: float,
    seed: int,
    report: Callable[[int], None],
) -> int:
    """Try the corpus, then mutants of it up to a limit, and return the number of inputs. Raises `Finding`."""
    source = random.Random(seed)
    inputs = list(corpus) or [b""]
    deadline = time.monotonic() + seconds
    done = 0
    while (runs is None or done < runs) and time.monotonic() < deadline:
        data = inputs[done] if done < len(inputs) else mutate(source, inputs, target.longest)
        try:
            target(data)
        except ContractBroken as broken:
            raise Finding(data, broken) from broken
        done += 1
        if done % REPORT_EVERY == 0:
            report(done)
    return done


def mutate(source: random.Random, corpus: Sequence[bytes], longest: int) -> bytes:
    data = source.choice(corpus)[:longest]
    for _ in range(source.randint(1, MAX_STEPS)):
        data = source.choice(_STEPS)(source, corpus, data)[:longest]
    return data


def _flip(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    if not data:
        return data
    at = source.randrange(len(data))
    return data[:at] + bytes((data[at] ^ (1 << source.randrange(8)),)) + data[at + 1 :]


def _replace(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + bytes((source.choice(INTERESTING),)) + data[at + 1 :]


def _insert(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + source.randbytes(source.choice((1, 1, 2, 4, 32))) + data[at:]


def _cut(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    start = source.randint(0, len(data))
    return data[:start] + data[source.randint(start, len(data)) :]


def _truncate(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    return data[: source.randint(0, len(data))]


def _splice(source: random.Random, corpus: Sequence[bytes], data: bytes) -> bytes:
    other = source.choice(corpus)
    return data[: source.randint(0, len(data))] + other[source.randint(0, len(other)) :]


_STEPS: Final = (_flip, _replace, _insert, _cut, _truncate, _splice)


def shorten(target: Target, data: bytes) -> bytes:
    """Shorten an input by leaving pieces out, while it still breaks the same promise."""
    wanted = broken_promise(target, data)
    deadline = time.monotonic() + SHORTENING_SECONDS
    size = len(data) // 2
    while wanted is not None and size:
        at = 0
        while at < len(data) and time.monotonic() < deadline:
            shorter = data[:at] + data[at + size :]
            if broken_promise(target, shorter) == wanted:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def broken_promise(target: Target, data: bytes) -> tuple[str, ...] | None:
    """Return the kind of finding that an input causes, without details, or None."""
    try:
        target(data)
    except ContractBroken as broken:
        cause = broken.__cause__
        promise = str(cause).split(":")[1:2] if isinstance(cause, AssertionError) else []
        return (type(cause).__name__, *promise)
    return None
