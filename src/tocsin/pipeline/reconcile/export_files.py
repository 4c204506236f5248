"""Reads the routers' exports of their queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tocsin.errors import ConfigError
from tocsin.pipeline.schemas.queue_exports import NOTIFIERS, SUBSCRIPTIONS
from tocsin.pipeline.spark.input_paths import require_plain_path
from tocsin.pipeline.transforms.drift import first_rows

PARQUET: Final = ".parquet"
JSON_LINES: Final = ".jsonl"
BROKEN: Final = ("MALFORMED_RECORD", "FAILED_READ_FILE", "CANNOT_READ")
KINDS: Final = (PARQUET, JSON_LINES)
HOW_TO_EXPORT: Final = (
    "create it with tocsin ntf store export-subscriptions or tocsin smp store export-notifiers"
)


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports of one NTF router and of SMP routers."""

    subscriptions: DataFrame
    notifiers: DataFrame
    routers: dict[int, str]
    """Addresses of the SMP routers, by server."""


def read_exports(spark: SparkSession, ntf: Path, smp: Sequence[Path]) -> Exports:
    """Raises ConfigError that names the file and says what is wrong with it."""
    for path in (ntf, *smp):
        _require_file(path)
    subscriptions = _read(spark, [ntf], SUBSCRIPTIONS)
    taken_at = _first_row(subscriptions, ntf)[2]
    routers: dict[int, str] = {}
    for path in smp:
        server, router, at = _first_row(_read(spark, [path], NOTIFIERS), path)
        if server in routers:
            raise ConfigError(f"{path} is a second export of {router}: name one export per router")
        if at < taken_at:
            raise ConfigError(
                f"{path} was taken before {ntf}: queues subscribed in between would look lost. "
                "Export the subscriptions first, then the notifiers"
            )
        routers[server] = router
    return Exports(subscriptions, _read(spark, smp, NOTIFIERS), routers)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Translates Spark's errors about broken files into ConfigError."""
    try:
        yield
    except Exception as error:  # raised by Spark or, while a task reads, by its bridge to Java
        if not any(sign in str(error) for sign in BROKEN):
            raise
        raise ConfigError(f"{what} cannot be read and may be incomplete: take the export again") from error


def host_of(router: str) -> str:
    """The first host of an address, as in events."""
    where = router.partition("@")[2].partition(",")[0]
    return where if where.endswith("]") or where.count(":") > 1 else where.partition(":")[0]


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"no export at {path}: {HOW_TO_EXPORT}")
    if path.suffix not in KINDS:
        raise ConfigError(f"{path} ends in neither {' nor '.join(KINDS)}: name an export")
    require_plain_path(path)


def _read(spark: SparkSession, paths: Sequence[Path], schema: StructType) -> DataFrame:
    """Reads Parquet and JSON files, also mixed."""
    frames = []
    reader = spark.read.schema(schema).option("mode", "FAILFAST")
    of_kind = {kind: [str(path.resolve()) for path in paths if path.suffix == kind] for kind in KINDS}
    if of_kind[PARQUET]:
        frames.append(reader.parquet(*of_kind[PARQUET]))
    if of_kind[JSON_LINES]:
        frames.append(reader.json(of_kind[JSON_LINES]))
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first


def _first_row(export: DataFrame, path: Path) -> tuple[int, str, int]:
    with reading(str(path)):
        rows = first_rows(export).collect()
    if len(rows) != 1:
        raise ConfigError(f"{path} is not an export of this kind: {HOW_TO_EXPORT}")
    [row] = rows
    return row["server"], row["router"], row["taken_at"]
