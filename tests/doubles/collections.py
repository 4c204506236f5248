"""Walks everything that an object holds, and notes the size of every collection by the attribute that holds it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Final

COLLECTIONS: Final = (dict, set, list, deque, frozenset)
SAMPLES: Final = 200
"""Elements of a collection to look into: those of one collection are alike."""


def sizes_of(*roots: object) -> dict[str, int]:
    """The largest size of each collection, by `Class.attribute`, in all objects of the package that can be reached."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("", root) for root in roots]
    keep: list[object] = []
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        if isinstance(value, COLLECTIONS):
            seen.add(id(value))
            keep.append(value)
            if name:
                sizes[name] = max(sizes.get(name, 0), len(value))
            waiting += [(f"{name}[]", each) for each in _elements(value)]
        elif _is_ours(value):
            seen.add(id(value))
            keep.append(value)
            kind = type(value).__name__
            waiting += [(f"{kind}.{attribute}", each) for attribute, each in _attributes(value)]
        elif isinstance(value, tuple):
            waiting += [(name, each) for each in value[:20]]
    return sizes


def _elements(value: Any) -> Iterator[object]:
    if isinstance(value, Mapping):
        for key, each in islice(list(value.items()), SAMPLES):
            yield key
            yield each
    else:
        yield from islice(list(value), SAMPLES)


def _is_ours(value: object) -> bool:
    if isinstance(value, type):
        return False
    return type(value).__module__.startswith("tocsin.") or isinstance(value, asyncio.Queue)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    names = set(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names |= {slots} if isinstance(slots, str) else set(slots)
    for name in names:
        if not name.startswith("__"):
            try:
                yield name.removeprefix(f"_{type(value).__name__}"), getattr(value, name)
            except AttributeError:
                continue


def growth(before: Mapping[str, int], after: Mapping[str, int], most: int = 8) -> dict[str, int]:
    """The collections that are larger than before by more than a few."""
    return {name: size for name, size in after.items() if size > before.get(name, 0) + most}


def total(values: Mapping[str, Sized]) -> int:
    return sum(map(len, values.values()))
