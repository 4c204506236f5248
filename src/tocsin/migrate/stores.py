"""Stores that are moved: where one is, and what was found there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from tocsin.errors import StoreError

Totals: TypeAlias = tuple[int, ...]
"""A named tuple that says what it counts when it is printed."""
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Logs in a folder, PostgreSQL of the operator's, or PostgreSQL of our own in the folder."""

    folder: Path
    url: str | None = field(default=None, repr=False)
    schema: str = ""
    embedded: bool = False

    def __str__(self) -> str:
        if self.in_database:
            return f"in PostgreSQL, schema {self.schema}"
        return f"in logs in {self.folder}"

    @property
    def in_database(self) -> bool:
        return self.url is not None or self.embedded

    def require_folder(self) -> None:
        """Raises StoreError."""
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is not there: name the folder of the store with --from-data")


@dataclass(frozen=True, slots=True)
class OpenedStore(Generic[W]):
    totals: Totals
    store: W | None = None
    """None if it stays where it is."""
    notes: tuple[str, ...] = ()
    direct: int = 0
    """What direct notifications have among the totals."""
    foreign_tokens: int = 0
    """Device tokens among them that the reference cannot read."""
