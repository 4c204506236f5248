"""Rows of a table of counts, as columns without its day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any] | Any]
"""By name: values of Python, or an array of NumPy."""


def columns_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    found = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, found, strict=True))
