"""Where segments of event logs are: in routers' folders, or copied to object storage (`s3://`, `gs://`, `abfss://`).

Theory of operation. Spark's own reader reads segments in folders, so executors must see these under the same path.
Segments in object storage are read by Python on the executors, as the tables are (`data_files`). Then driver and
executors share nothing but the storage.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.fs import FileSelector, FileType  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import ConfigError, StoreError
from tocsin.events.event_log import PUBLISHED
from tocsin.pipeline.lake.places import TablePlace, table_place
from tocsin.pipeline.spark.input_paths import literal_path
from tocsin.pipeline.spark.python_workers import freeze_imports

NEWLINE_WITHIN: Final = 1 << 20
LINE: Final = "value string, segment string"


class SegmentPiece(msgspec.Struct, frozen=True, array_like=True):
    """A segment, or what was appended to it."""

    source: str
    """The resolved folder, or the address in object storage."""
    name: str
    end: int
    start: int = 0

    @property
    def label(self) -> str:
        """The segment as the table `quarantine` names it."""
        return f"{os.path.basename(self.source)}/{self.name}"


class SegmentSources:
    """The event logs of some routers. Raises ConfigError for a source that cannot be one."""

    def __init__(self, sources: Iterable[str | Path], options: Mapping[str, str] | None = None) -> None:
        """`options`: settings of object storage."""
        self._places = {place.uri: place for place in (_place(each, options) for each in sources)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def existing(self, source: str) -> set[str]:
        """The names of the published segments of a source."""
        if (folder := self._places[source].local) is not None:
            return {name for name in os.listdir(folder) if fnmatch(name, PUBLISHED)}
        return set(self._stored(source))

    def sizes(self, source: str, leaving_out: Container[str] = ()) -> dict[str, int]:
        """The published segments of a source with their sizes, without some that need not be looked at."""
        if (folder := self._places[source].local) is None:
            return {name: size for name, size in self._stored(source).items() if name not in leaving_out}
        found: dict[str, int] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                if fnmatch(entry.name, PUBLISHED) and entry.name not in leaving_out:
                    with suppress(FileNotFoundError):  # its router deleted it
                        found[entry.name] = entry.stat().st_size
        return found

    def pieces(self) -> list[SegmentPiece]:
        """All published segments."""
        return [
            SegmentPiece(source, name, size)
            for source in self.names
            for name, size in sorted(self.sizes(source).items())
        ]

    def exists(self, piece: SegmentPiece) -> bool:
        place = self._places.get(piece.source)
        if place is None:
            return False
        with _seam(place):
            return bool(place.files().get_file_info(piece.name).type == FileType.File)

    def labelled(self, label: str) -> SegmentPiece | None:
        """Find a segment by its label."""
        folder, _, name = label.rpartition("/")
        pieces = (SegmentPiece(each, name, 0) for each in self.names if os.path.basename(each) == folder)
        return next(filter(self.exists, pieces), None)

    def lines(self, spark: SparkSession, pieces: Sequence[SegmentPiece]) -> DataFrame:
        """The lines of whole segments: `value`, and `segment`, the label. Deleted segments have none."""
        stored = [each for each in pieces if self._places[each.source].local is None]
        local = (os.path.join(each.source, each.name) for each in pieces if each not in stored)
        paths = [path for path in local if os.path.exists(path)]  # Spark plans with those that exist
        frames = [_text(spark, paths)] if paths else []
        if stored:
            tasks = min(len(stored), 4 * spark.sparkContext.defaultParallelism)
            places = {each.source: self._places[each.source] for each in stored}
            reading = _LinesReader(places, tuple(stored), tasks)
            frames.append(spark.range(0, tasks, 1, tasks).mapInArrow(reading, LINE))
        if not frames:
            return spark.createDataFrame([], LINE)
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])

    def tail(self, piece: SegmentPiece) -> list[str]:
        """The lines after `start`. If a line was cut off there, it is read again from its beginning."""
        place = self._places[piece.source]
        with _seam(place), suppress(FileNotFoundError), place.files().open_input_file(piece.name) as file:
            near = max(0, piece.start - NEWLINE_WITHIN)
            file.seek(near)
            begin = near + file.read(piece.start - near).rfind(b"\n") + 1
            file.seek(begin)
            return _decoded(file.read(piece.end - begin))
        return []

    def _stored(self, source: str) -> dict[str, int]:
        place = self._places[source]
        with _seam(place):
            found = place.files().get_file_info(FileSelector("", allow_not_found=True))
        return {
            each.base_name: each.size
            for each in found
            if each.type == FileType.File and fnmatch(each.base_name, PUBLISHED)
        }


@dataclass(frozen=True, slots=True)
class _LinesReader:
    """Runs on an executor: reads a share of the segments."""

    places: Mapping[str, TablePlace]
    pieces: tuple[SegmentPiece, ...]
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        storages: dict[str, Any] = {source: place.files() for source, place in self.places.items()}
        for batch in batches:
            for share in batch["id"].to_pylist():
                for piece in self.pieces[share :: self.tasks]:
                    with suppress(FileNotFoundError):
                        with storages[piece.source].open_input_file(piece.name) as file:
                            lines = _decoded(file.read())
                        labels = pa.array([piece.label] * len(lines), pa.string())
                        columns = [pa.array(lines, pa.string()), labels]
                        yield pa.RecordBatch.from_arrays(columns, names=["value", "segment"])


def _place(source: str | Path, options: Mapping[str, str] | None) -> TablePlace:
    place = table_place(source, options)
    folder = place.local
    if folder is None:
        return place
    if not folder.is_dir():
        raise ConfigError(f"no event log folder at {folder}: name the event_log of a router's configuration")
    return TablePlace(str(folder.resolve()))


def _text(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    # A router may delete an old segment at any time.
    reader = spark.read.option("ignoreMissingFiles", "true")
    path = F.url_decode(F.replace("_metadata.file_path", F.lit("+"), F.lit("%2B")))
    segment = F.regexp_extract(path, "([^/]+/[^/]+)$", 1)
    return reader.text([literal_path(path) for path in paths]).select("value", segment.alias("segment"))


def _decoded(data: bytes) -> list[str]:
    return [line.decode("utf-8", "replace") for line in data.splitlines() if line]


@contextmanager
def _seam(place: TablePlace) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise StoreError(f"cannot read event logs at {place.uri}: {reason}") from error
