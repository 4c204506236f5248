"""Export files for the pipeline: zstd Parquet, or JSON lines where pyarrow is not installed."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from tocsin.errors import ConfigError
from tocsin.events.private_files import private_draft

PARQUET: Final = ".parquet"
JSON_LINES: Final = ".jsonl"
ROWS_AT_A_TIME: Final = 100_000
K = TypeVar("K", bound=msgspec.Struct)
R = TypeVar("R")
_FEW_VALUES: Final = ("server", "service", "status", "router", "taken_at")

Add = Callable[[Sequence[msgspec.Struct]], None]


def add_out_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "out",
        type=Path,
        metavar="OUT",
        help="file.parquet, or file.jsonl without the package pyarrow; only its owner may read it: it names queues",
    )


async def export_rows(
    path: Path, first: K, found: AsyncIterator[R] | Iterable[R], row: Callable[[R], K]
) -> int:
    """Write `first` and a row for each item. Returns the number of items. Raises ConfigError."""
    count = 0
    with _export_file(path, type(first)) as add:
        add([first])
        async for portion in _in_portions(found):
            add([row(each) for each in portion])
            count += len(portion)
    return count


@contextmanager
def _export_file(path: Path, kind: type[msgspec.Struct]) -> Iterator[Add]:
    """Open an export to which rows are added. The whole file appears when the body succeeds. Raises ConfigError."""
    if path.suffix not in (PARQUET, JSON_LINES):
        raise ConfigError(f"unknown format of {path.name}: name the file {PARQUET} or {JSON_LINES}")
    writing = _parquet if path.suffix == PARQUET else _json_lines
    with private_draft(path) as draft, writing(draft, kind) as add:
        yield add


async def _in_portions(rows: AsyncIterator[R] | Iterable[R]) -> AsyncIterator[list[R]]:
    portion: list[R] = []
    async for row in rows if isinstance(rows, AsyncIterator) else _each(rows):
        portion.append(row)
        if len(portion) == ROWS_AT_A_TIME:
            yield portion
            portion = []
    if portion:
        yield portion


async def _each(rows: Iterable[R]) -> AsyncIterator[R]:
    for row in rows:
        yield row


@contextmanager
def _json_lines(path: Path, _kind: type[msgspec.Struct]) -> Iterator[Add]:
    encode = msgspec.json.Encoder().encode_lines
    with path.open("wb") as file:
        yield lambda rows: _write_all(file, encode(rows))


def _write_all(file: BinaryIO, lines: bytes) -> None:
    file.write(lines)


@contextmanager
def _parquet(path: Path, kind: type[msgspec.Struct]) -> Iterator[Add]:
    try:
        import pyarrow  # type: ignore[import-untyped]  # it has no types
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{PARQUET} needs the package pyarrow: install it, or write {JSON_LINES}"
        ) from error
    types = {int: pyarrow.int64(), str: pyarrow.string(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(each.name, types[each.type]) for each in msgspec.structs.fields(kind)])
    few = [name for name in _FEW_VALUES if name in schema.names]

    def add(rows: Sequence[msgspec.Struct]) -> None:
        columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
        writer.write_table(pyarrow.table(columns, schema=schema))

    with parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=few) as writer:
        yield add
