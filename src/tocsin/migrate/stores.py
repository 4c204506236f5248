"""Stores that are moved: where a store is, how it is read and written as a whole, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError

Totals: TypeAlias = tuple[int, ...]
"""A named tuple whose text names what it counts."""
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Logs in a folder, the operator's PostgreSQL, or an embedded PostgreSQL whose files are in the folder."""

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
            raise StoreError(f"{self.folder} does not exist: name the folder of the store with --from-data")


class StoreTransfers(Protocol[W]):
    """Reads and writes the whole store of one kind of router. Every method raises StoreError."""

    def read_logs(
        self, folder: Path, *, skip_broken_lines: bool, keep_broken_lines: bool
    ) -> tuple[W, str | None]:
        """The store, and a sentence about records that were left out."""

    def totals(self, store: W) -> Totals: ...

    def require_empty_logs(self, folder: Path) -> None: ...

    def write_logs(self, folder: Path, store: W, progress: Progress) -> None: ...

    async def require_empty_database(self, place: StorePlace) -> None: ...

    async def read_database(self, place: StorePlace) -> W: ...

    async def write_database(self, place: StorePlace, store: W, progress: Progress) -> None:
        """In one transaction."""

    async def roll_back_database(
        self, place: StorePlace, keep: str, *, lose_data: bool, dry_run: bool
    ) -> tuple[list[str], list[str]]:
        """Undo all changes of the tables after the version `keep`: their names, and what was lost."""


@dataclass(frozen=True, slots=True)
class OpenedStore(Generic[W]):
    totals: Totals
    store: W | None = None
    """None if the store stays where it is."""
    notes: tuple[str, ...] = ()
    direct: int = 0
    """Records of direct notifications among the totals."""
    foreign_tokens: int = 0
    """Device tokens that the reference cannot read."""
