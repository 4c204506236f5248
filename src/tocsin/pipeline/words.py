"""The stages and texts that occur in files of a table.

Theory of operation. Such columns have few different values, which Parquet files hold as dictionaries: reading these
costs a fraction of looking at every row with Spark, so little that the driver does it for all executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.parquet import ParquetFile, read_schema  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.schemas.notifications import TEXTS

STAGE = "stage"


@dataclass(frozen=True, slots=True)
class Words:
    stages: frozenset[str] = frozenset()
    texts: dict[str, frozenset[str]] = field(default_factory=dict)
    """By column; a column without any is left out."""

    def __or__(self, other: Words) -> Words:
        texts: dict[str, frozenset[str]] = {
            name: self.texts.get(name, frozenset()) | other.texts.get(name, frozenset())
            for name in TEXTS
            if name in self.texts or name in other.texts
        }
        return Words(self.stages | other.stages, texts)


def words_of(paths: Iterable[Path]) -> Words:
    """Of files of `events`, or of `notifications`, which have no stages."""
    found: dict[str, set[str]] = {}
    for path in paths:
        columns = [name for name in (STAGE, *TEXTS) if name in read_schema(path).names]
        with ParquetFile(path, read_dictionary=columns) as file:
            for batch in file.iter_batches(batch_size=1 << 20, columns=columns):
                for name, column in zip(columns, batch.columns, strict=True):
                    known = found.setdefault(name, set())
                    known.update(text for text in column.dictionary.to_pylist() if text is not None)
    texts = {name: frozenset(found[name]) for name in TEXTS if found.get(name)}
    return Words(frozenset(found.get(STAGE, ())), texts)
