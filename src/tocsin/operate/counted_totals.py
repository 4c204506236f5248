"""Totals that routers count: fields of a dataclass, each with the help text of its metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any, NamedTuple


def counted(about: str) -> int:
    """A total that begins at 0; `about` becomes the help text of its metric."""
    total: int = field(default=0, metadata={"about": about})
    return total


class Total(NamedTuple):
    name: str
    about: str
    value: int


def totals(counters: Any) -> Iterator[Total]:
    """Of all fields of a dataclass that were made by `counted`."""
    for each in fields(counters):
        if "about" in each.metadata:
            yield Total(each.name, each.metadata["about"], getattr(counters, each.name))
