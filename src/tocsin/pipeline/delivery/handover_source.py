"""A Spark streaming source over hand-over folders: its rows say which segments to read, one partition per shard.

The rows hold no notifications. Executors read the segments themselves, so pushes do not pass through Spark; the folders
must be on a shared file system. The offset is the name of the last segment of each folder; names increase. A segment is
deleted when its batch is committed, except the newest one, which tells its router which names have been used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tocsin.events.event_log import SEGMENTS

FORMAT: Final = "tocsin_handover"
SCHEMA: Final = "folder int, segment string, shard int, shards int"
BATCH_BYTES: Final = 16 << 20
"""About 8,000 pushes, so that each batch of a backlog takes less than a second."""

Offset: TypeAlias = dict[str, str]
"""Folder → name of its last segment."""


class HandoverSource(DataSource):
    """Options: `folders`, a JSON list, and `shards`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> HandoverReader:
        return HandoverReader(
            [Path(each) for each in json.loads(self.options["folders"])], int(self.options["shards"])
        )


@dataclass
class SegmentsOfShard(InputPartition):
    """All new segments, to be read by one shard."""

    segments: tuple[tuple[int, str], ...]
    """Pairs of folder number and name."""
    shard: int


class HandoverReader(DataSourceStreamReader):
    def __init__(self, folders: Sequence[Path], shards: int) -> None:
        self._folders = folders
        self._shards = shards

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Takes segments from the folders in turn, up to `BATCH_BYTES`."""
        end, room = dict(start), BATCH_BYTES
        waiting = [iter(self._new(folder, start)) for folder in self._folders]
        while waiting and room > 0:
            for segments in list(waiting):
                path = next(segments, None)
                if path is None:
                    waiting.remove(segments)
                    continue
                end[str(path.parent)] = path.name
                with suppress(FileNotFoundError):  # its router has restarted
                    room -= path.stat().st_size
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[SegmentsOfShard]:
        segments = tuple(
            (number, path.name)
            for number, folder in enumerate(self._folders)
            for path in self._new(folder, start)
            if path.name <= end.get(str(folder), "")
        )
        return [SegmentsOfShard(segments, shard) for shard in range(self._shards)] if segments else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, SegmentsOfShard)
        for folder, segment in partition.segments:
            yield folder, segment, partition.shard, self._shards

    def commit(self, end: Offset) -> None:
        for folder in self._folders:
            done = end.get(str(folder), "")
            for path in folder.glob(SEGMENTS):
                if path.name < done:
                    path.unlink(missing_ok=True)

    @staticmethod
    def _new(folder: Path, start: Offset) -> list[Path]:
        after = start.get(str(folder), "")
        return sorted(path for path in folder.glob(SEGMENTS) if path.name > after)
